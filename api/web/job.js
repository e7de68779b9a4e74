/* job - one job: where it stands and why, its curves, ranks, log, events, checkpoints, and what can be done to it */
import { follow, get, pages, post } from './api.js';
import { board } from './board.js';
import { checkpointsPanel } from './checkpoints.js';
import { controls } from './controls.js';
import { diagnosisPanel } from './diagnosis.js';
import { logPanel } from './log.js';
import { ranksPanel } from './ranks.js';
import { series } from './series.js';
import * as store from './store.js';
import { progress as progressOf, tasksPanel } from './tasks.js';
import * as ui from './ui.js';
const { h, text } = ui;

const EVENTS_MAX = 4000, EVENTS_SHOWN = 200;

const ACTIONS = [
    { verb: 'checkpoint', label: 'Checkpoint', when: (j) => j.state === 'running' && j.kind === 'train',
        done: 'A checkpoint is written at the next step.' },
    { verb: 'suspend', label: 'Suspend', when: (j) => ['queued', 'starting', 'running', 'recovering'].includes(j.state),
        ask: 'It writes a checkpoint and gives its devices back. Resume it whenever you like.', done: 'Suspending.' },
    { verb: 'resume', label: 'Resume', when: (j) => j.state === 'suspended', done: 'Queued again.' },
    { verb: 'cancel', label: 'Cancel', when: (j) => !ui.isEnded(j), dangerous: true,
        ask: 'It ends for good. Its checkpoints, logs and metrics stay.', done: 'Cancelling.' },
    { verb: 'again', label: 'Run again', when: (j) => ui.isEnded(j) && j.spec && !j.task,
        ask: 'Its specification is submitted once more, as a new job.', run: runAgain },
    { verb: 'edit', label: 'Edit and run', when: (j) => j.spec && !j.task, run: (j) => { location.hash = `#/new?from=${j.id}`; } },
    { verb: 'change', label: 'Scale, priority…', when: (j) => !ui.isEnded(j) && !j.task, run: controls },
];

/* After what it once waited for it need not wait again. */
async function runAgain(job) {
    const { after, ...spec } = job.spec;
    if (Object.values(spec.command?.env ?? {}).includes('***'))
        throw new Error('the values of its variables are for its owner alone; see `muster resubmit`');
    const made = await post('/v1/jobs', spec);
    location.hash = `#/jobs/${made.id}`;
    return `Submitted as ${made.id}.`;
}

async function act(job, action) {
    if (action.ask && !await ui.confirm(`${action.label} ${job.name}?`, action.ask, `${action.label} job`, action.dangerous))
        return;
    try {
        const said = action.run ? await action.run(job) : (await post(`/v1/jobs/${job.id}/${action.verb}`), action.done);
        if (said)
            ui.toast(said);
    } catch (e) {
        ui.toast(ui.sentence(e.message), 'error');
    }
    store.refreshJob(job.id);
}

/* --- the head: name, state, progress, numbers ------------------------------------------------------- */

function head(getJob) {
    const name = h('h1'), id = h('span.note.id'), pill = ui.pill('queued'), reason = h('p.reason', { 'aria-live': 'polite' });
    const progress = ui.bar('progress'), steps = h('span'), eta = h('span');
    const row = h('.progress-row', {}, progress, h('.progress-words', {}, steps, eta));
    const buttons = ACTIONS.map((a) => h(a.dangerous ? 'button.danger' : 'button', { type: 'button', 'data-action': a.verb,
        hidden: true, onclick: () => act(getJob(), a) }, a.label));
    const facts = {};
    const list = h('dl.numbers', {}, ...[['step', 'Step'], ['loss', 'Loss'], ['eval', 'Evaluation loss'], ['rate', 'Tokens/s'],
        ['devices', 'Devices'], ['layout', 'Layout'], ['plan', 'Step time'], ['time', 'Running for'], ['restarts', 'Restarts']]
        .map(([key, label]) => h('.number', { 'data-key': key }, h('dt', {}, label), facts[key] = h('dd'))));
    const planNote = h('dd.note');
    facts.plan.after(planNote);
    const el = h('header.job-head', {}, h('a.back', { href: '#/' }, '← Jobs'),
        h('.job-title', {}, name, pill, id, h('.actions', {}, buttons)), reason, row, list);

    function update(job) {
        const p = job.progress, train = job.kind === 'train';
        text(name, job.name);
        text(id, `${job.id} · ${job.project} · ${job.user} · priority ${job.priority}`);
        ui.setPill(pill, job.state);
        text(reason, ['failed', 'succeeded'].includes(job.state) || ui.isWaiting(job) ? '' : job.reason?.text ? ui.sentence(job.reason.text) : '');
        ACTIONS.forEach((a, i) => { buttons[i].hidden = !a.when(job); });
        row.hidden = !train && !job.array;
        if (job.array) {
            const tasks = progressOf(job);
            progress.set(tasks.share, job.state);
            text(steps, tasks.words);
            text(eta, `${ui.count(tasks.running)} running, at most ${ui.count(job.array.max_running)}`);
            list.hidden = true;
            return;
        }
        progress.set(p?.steps ? p.step / p.steps : job.state === 'succeeded' ? 1 : 0, job.state);
        text(steps, p?.steps ? `step ${ui.count(p.step)} of ${ui.count(p.steps)}` : 'no step yet');
        text(eta, job.state === 'running' && p?.eta_s ? `about ${ui.duration(p.eta_s)} left` : '');
        facts.step.parentElement.hidden = train || typeof p?.step !== 'number'; /* of training, the row above tells it */
        text(facts.step, ui.count(p?.step));
        facts.loss.parentElement.hidden = !train && typeof p?.loss !== 'number';
        for (const key of ['eval', 'rate'])
            facts[key].parentElement.hidden = !train;
        text(facts.loss, ui.loss(p?.loss));
        text(facts.eval, ui.loss(job.eval?.loss));
        text(facts.rate, p?.tokens_per_s ? ui.count(p.tokens_per_s) : '–');
        const d = job.devices, asked = d.min === d.max ? d.min : `${d.min}–${d.max}`;
        text(facts.devices, ui.isEnded(job) ? `used ${ui.devicesHad(job)}` : d.assigned ? `${d.assigned} of ${asked}` : asked);
        facts.layout.parentElement.hidden = !train;
        text(facts.layout, job.layout ? ui.layout(job.layout) || 'one rank' : '–');
        const plan = job.plan;
        facts.plan.parentElement.hidden = !plan?.predicted_step_ms;
        const measured = typeof plan?.error_percent === 'number';
        text(facts.plan, plan?.predicted_step_ms ? ui.ms(measured ? plan.measured_step_ms : plan.predicted_step_ms) : '–');
        text(planNote, measured ? `predicted ${ui.ms(plan.predicted_step_ms)}, ${ui.percentOff(plan.error_percent)}` : 'predicted');
        const from = Date.parse(job.started_at ?? job.submitted_at), to = job.finished_at ? Date.parse(job.finished_at) : Date.now();
        text(facts.time.previousSibling, job.finished_at ? 'Took' : job.started_at ? 'Running for' : 'Waiting for');
        text(facts.time, !job.started_at && job.finished_at ? '–' : ui.duration((to - from) / 1000));
        const r = job.restarts ?? {}, all = (r.system ?? 0) + (r.node ?? 0) + (r.user ?? 0);
        text(facts.restarts, all ? `${all} (${['system', 'node', 'user'].filter((k) => r[k]).map((k) => `${r[k]} ${k}`).join(', ')})` : '0');
    }
    return { el, update };
}

/* --- why it waits; why it failed --------------------------------------------------------------------- */

/* What an estimate of its start rests on. */
const BASES = { 'time-limits': (j) => `after ${j}’s time limit`, 'work-left': (j) => `when ${j} is expected to be done`,
    'next-round': () => 'in a coming full round', reserved: () => 'when the devices kept for it are free',
    calendar: () => 'when a maintenance is over or its reservation begins' };

function explainBox(id, signal) {
    const el = h('section.callout', { 'aria-label': 'Why it waits', hidden: true });
    let shown = null;
    async function update(job) {
        el.hidden = !ui.isWaiting(job);
        const sig = `${job.state} ${job.reason?.text} ${job.queue?.ahead} ${job.starts?.at} ${job.finish?.text}`;
        if (el.hidden || sig === shown)
            return;
        shown = sig;
        try {
            const e = await get(`/v1/jobs/${id}/explain`, signal);
            el.replaceChildren(h('h2', {}, ui.sentence(e.summary)), ...e.causes.filter((c) => c.text !== e.summary)
                .map((c) => h('p', {}, ui.sentence(c.text))), ...e.causes.filter((c) => c.would_help?.length)
                .map((c) => h('.help', {}, h('span.label', {}, 'What would help'),
                    h('ul', {}, c.would_help.map((w) => h('li', {}, w))))),
            ...e.causes.filter((c) => c.behind?.length).map((c) => h('p.note', {}, 'Holding the devices or ahead in the queue: ',
                ...c.behind.flatMap((b, i) => [i ? ', ' : '', h('a', { href: `#/jobs/${b}` }, b)]))),
            ...e.causes.filter((c) => c.classes?.length).map((c) => h('p.note', {}, 'Devices it may use: ',
                c.classes.map((k) => `${k.free} of ${k.total} ${k.class} free`).join(', '))),
            ...e.causes.filter((c) => c.starts?.at).map((c) => h('p.note', {},
                `Expected to start at ${ui.when(c.starts.at)}, ${BASES[c.starts.basis]?.(c.starts.after ?? 'another job')}.`)),
            ...job.queue ? [h('p.note', {}, `${job.queue.ahead} ahead of it in the queue, which take ${job.queue.ahead_devices} devices.`)] : [],
            ...job.finish ? [h('p.note', {}, `To have ended by ${ui.when(job.finish.by)}: ${job.finish.verdict}; it ${job.finish.text}.`)] : []);
        } catch (e) {
            if (e.name !== 'AbortError')
                el.replaceChildren(h('p', {}, ui.sentence(e.message)));
        }
    }
    return { el, update };
}

const CLASSES = { user: 'The job’s own fault', system: 'A fault of the system', node: 'A fault of the node',
    preempted: 'Made room for another job', cancelled: 'Cancelled' };

function outcomeBox() {
    const el = h('section.callout.bad', { 'aria-label': 'How it ended', hidden: true });
    let shown = null;
    return { el, update(job) {
        const o = job.outcome, sig = JSON.stringify([o, job.state]);
        el.hidden = !o || ['done', 'cancelled'].includes(o.class) || job.state === 'succeeded';
        if (el.hidden || sig === shown)
            return;
        shown = sig;
        const where = [o.rank !== null && o.rank !== undefined && o.rank >= 0 ? `rank ${o.rank}` : null,
            o.node ? `on ${o.node}` : null, o.signal ? `signal ${o.signal}` : o.exit_code > 0 ? `exit code ${o.exit_code}` : null]
            .filter(Boolean).join(' · ');
        el.replaceChildren(
            h('p.label', {}, (ui.isEnded(job) ? '' : 'Last attempt: ') + (CLASSES[o.class] ?? o.class) + (where ? ` · ${where}` : '')),
            h('h2', {}, ui.sentence(o.message || 'it ended without a word')),
            ...(o.log_tail?.length ? [h('pre.tail', { tabindex: '0', 'aria-label': 'last lines of its log' }, o.log_tail.join('\n'))] : []));
    } };
}

/* --- events ----------------------------------------------------------------------- */

function panel(title, ...content) {
    return h('section.panel', { 'aria-label': title }, h('.panel-head', {}, h('h2', {}, title)), ...content);
}

function eventWords(e) {
    const d = e.data ?? {};
    switch (e.type) {
    case 'state':
        return [h('strong', {}, e.to), e.cause?.text ? ` – ${e.cause.text}` : ''];
    case 'submitted':
        return [h('strong', {}, 'submitted')];
    case 'checkpoint':
        return [h('strong', {}, 'checkpoint'), d.error ? ` failed at step ${d.step}: ${d.error}`
            : ` at step ${d.step}${d.seconds ? `, ${d.seconds.toFixed(2)} s` : ''}`];
    case 'eval':
        return [h('strong', {}, 'evaluation loss'), ` ${ui.loss(d.loss)} at step ${d.step}`];
    default:
        return [h('strong', {}, e.type), ` ${e.cause?.text ?? d.message ?? d.text ?? ''}`];
    }
}

function eventsPanel() {
    const list = h('ol.timeline', { reversed: true }), note = h('p.note.pad', { hidden: true });
    const seen = new Set();
    let missing = 0; /* events that are not kept any more */
    function count() {
        const all = seen.size + missing;
        note.hidden = all <= EVENTS_SHOWN;
        text(note, `The newest ${EVENTS_SHOWN} of ${ui.count(all)}.`);
    }
    return { el: panel('Events', ui.scroll('What happened', list, note)),
        add(e) {
            if (seen.has(e.id) || e.type === 'metrics')
                return;
            seen.add(e.id);
            list.prepend(h(`li.t-${e.type}.is-${e.to ?? 'none'}`, {}, h('time', { datetime: e.at, title: ui.fullTime(e.at) }, ui.when(e.at)),
                h('span', {}, eventWords(e)), h('span.note', {}, e.actor ?? '')));
            while (list.children.length > EVENTS_SHOWN)
                list.lastChild.remove();
            count();
        },
        leaveOut(n) {
            missing = n;
            count();
        } };
}

/* --- the page ----------------------------------------------------------------------------------------- */

/* What it measured; grows with the stream. */
function curves(signal, job) {
    const s = series(job.id, signal, (atOnce) => all.draw(atOnce));
    const all = board([{ s, label: job.name }], { signal, train: job.kind === 'train', name: job.id });
    return { el: all.el, load: s.load, add: s.add,
        eval(e) {
            if (typeof e.loss === 'number')
                s.evals.push(e);
            all.draw(false);
        },
        checkpoint(e) {
            if (!e.error)
                s.checkpoints.push({ step: e.step });
            all.draw(false);
        } };
}

async function live(id, signal, parts) {
    const { charts, events, checkpoints, diagnosis } = parts;
    let lastId = '';
    const mark = (type, e) => ['eval', 'checkpoint'].includes(type) && typeof e.data?.step === 'number' && charts[type](e.data);
    try {
        const past = await pages(`/v1/jobs/${id}/events?limit=500`, 'events', EVENTS_MAX, signal,
            (page) => events.leaveOut(page.left_out?.events ?? 0));
        for (const e of past) {
            events.add(e);
            lastId = e.id;
            mark(e.type, e);
        }
        store.refreshJob(id); /* the job was read before them */
    } catch (e) {
        if (e.name === 'AbortError')
            return;
        ui.toast(ui.sentence(e.message), 'error');
    }
    checkpoints.update();
    diagnosis.refresh();
    /* Points are not kept in the stream: each time it opens, what it missed is read. */
    const state = (open) => open && charts.load().catch((e) => e.name !== 'AbortError' && ui.toast(ui.sentence(e.message), 'error'));
    await follow(`/v1/jobs/${id}/events`, { signal, lastId, state, on(type, e) {
        if (type === 'metrics') {
            charts.add(e.data);
            return;
        }
        events.add(e);
        mark(type, e);
        if (type === 'checkpoint')
            checkpoints.update();
        else if (e.cause?.code === 'hang' || ['recovering', 'failed'].includes(e.to))
            diagnosis.soon();
        store.refreshJob(id); /* the plan, too */
    } });
}

/* What its program says that it was given, and came to. */
function toldPanel() {
    const parts = [['config', 'Configuration'], ['summary', 'Summary']].map(([key, title]) => {
        const text = h('pre', { tabindex: '0' });
        return { key, text, el: h('details.panel.spec', { hidden: true }, h('summary', {}, title), text) };
    });
    return { els: parts.map((p) => p.el), update(job) {
        for (const p of parts) {
            p.el.hidden = !job[p.key];
            const words = job[p.key] ? JSON.stringify(job[p.key], null, 2) : '';
            if (p.text.textContent !== words)
                p.text.textContent = words;
        }
    } };
}

function build(main, signal, job) {
    const id = job.id;
    let now = job;
    const top = head(() => now), why = explainBox(id, signal), outcome = outcomeBox(), ranks = ranksPanel(id, signal);
    const events = eventsPanel(), checkpoints = checkpointsPanel(job, signal);
    const charts = curves(signal, job);
    const log = logPanel(id, signal), diagnosis = diagnosisPanel(id, signal), told = toldPanel();
    const train = job.kind === 'train', tasks = job.array && tasksPanel(id, signal);
    if (tasks) /* an array measures nothing itself */
        charts.load = () => Promise.resolve();
    if (tasks)
        main.replaceChildren(top.el, outcome.el, tasks.el, events.el, h('details.panel.spec', {}, h('summary', {}, 'Specification'),
            h('pre', { tabindex: '0' }, JSON.stringify(job.spec, null, 2))));
    else
        main.replaceChildren(top.el, outcome.el, why.el, diagnosis.el, charts.el, ranks.wide,
        h('.job-grid', {}, log.el, h('.stack', {}, events.el, checkpoints.el, ranks.el)), ...told.els,
        h('details.panel.spec', {}, h('summary', {}, 'Specification'), h('pre', { tabindex: '0' }, JSON.stringify(job.spec, null, 2))));

    function update(fresh) {
        now = { ...fresh, spec: job.spec, plan: fresh.plan ?? now.plan, config: fresh.config ?? now.config,
            summary: fresh.summary ?? now.summary }; /* lists leave them out */
        checkpoints.set(now);
        for (const part of tasks ? [top, outcome, tasks] : [top, why, outcome, ranks, log, diagnosis, told])
            part.update(now);
    }
    update(job);
    store.watch(() => {
        const fresh = store.jobs.get(id);
        if (fresh)
            update(fresh);
    }, signal);
    const tick = setInterval(() => top.update(now), 1000);
    signal.addEventListener('abort', () => clearInterval(tick), { once: true });
    live(id, signal, { charts, events, checkpoints, diagnosis });
}

export function jobPage(main, signal, id) {
    main.replaceChildren(h('p.note.pad', {}, 'Reading…'));
    get(`/v1/jobs/${encodeURIComponent(id)}`, signal).then((job) => {
        document.title = `${job.name} · Muster`;
        if (!store.jobs.has(job.id))
            store.jobs.set(job.id, job);
        build(main, signal, job);
    }, (e) => {
        if (e.name !== 'AbortError')
            main.replaceChildren(h('h1.sr', {}, `Job ${id}`), e.status === 404 ? ui.empty(`There is no job ${id}`, h('a', { href: '#/' }, 'To the jobs'))
                : ui.problemBox(e, () => jobPage(main, signal, id)));
    });
    return id;
}
