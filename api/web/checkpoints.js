/* checkpoints - the checkpoints of a job as they lie on the disk, what can be done with one, and what became of that */
import { get, post, remove } from './api.js';
import * as store from './store.js';
import * as ui from './ui.js';
const { h, text } = ui;

const SHOWN = 50, TASKS_SHOWN = 10, OF = 'checkpoint-of', SAMPLE_CHARS = 4000;
const STATES = { complete: 'complete', incomplete: 'not complete', removed: 'removed', failed: 'not written', unknown: 'elsewhere' };
const DID = { verify: 'Verify', export: 'Export', sample: 'Sample', delete: 'Delete' };

const field = (label, control) => h('label.field', {}, h('span.label', {}, label), control);

/* As a new job, which begins where this checkpoint was written. */
async function goOn(job, c, steps) {
    const { after, ...spec } = structuredClone(job.spec), own = (spec.checkpoint?.dir ?? 'checkpoints') === 'checkpoints';
    spec.train = { ...spec.train, steps, init: { ...spec.train.init, from: own ? { job: job.id, step: c.step } : c.path, resume: true } };
    spec.name = `${spec.name.slice(0, 40)}-from-${c.step}`;
    if (spec.checkpoint?.dir?.startsWith('/')) /* the folder of the other job stays as it is */
        delete spec.checkpoint.dir;
    return post('/v1/jobs', spec);
}

/* What is known of one, and what can be done with it. go(words, call): ask for it, and tell. */
function openOne(job, c, newest, go) {
    const train = job.kind === 'train', there = c.state === 'complete', close = () => dialog.close();
    const button = (verb, label, ask, kind = 'button') => h(kind, { type: 'button', 'data-verb': verb, onclick: async () => {
        close();
        go(label, ask);
    } }, label);
    const prompt = h('input', { type: 'text', maxlength: 4096, value: 'The ' });
    const tokens = h('input', { type: 'number', min: 1, max: 4096, value: 200 });
    const dtype = h('select', {}, ['f32', 'bf16', 'f16'].map((t) => h('option', {}, t)));
    const least = Math.max(job.spec.train?.steps ?? 0, c.step + 1);
    const steps = h('input', { type: 'number', min: c.step + 1, value: least > c.step + 1 ? least : c.step * 2 });
    const base = `/v1/jobs/${job.id}/checkpoints/${c.step}`, l = c.layout && (ui.layout(c.layout) || 'one rank');
    const removable = there && (ui.isEnded(job) || c.step < newest);
    const dialog = h('dialog.checkpoint', { 'aria-labelledby': 'checkpoint-title' },
        h('h2', { id: 'checkpoint-title' }, `Checkpoint of step ${ui.count(c.step)}`),
        h('dl.facts', {}, [['State', STATES[c.state] ?? c.state], ['Size', ui.bytes(c.disk_bytes ?? c.stored_bytes ?? c.bytes)],
            ['Codec', c.archived ? 'archived' : c.codec], ['Layout', l], ['Files', c.files], ['Written', c.at && ui.fullTime(c.at)],
            ['Error', c.error]].filter(([, v]) => v || v === 0).flatMap(([k, v]) => [h('dt', {}, k), h('dd', {}, v)])),
        c.path && ui.commandLine(c.path),
        there && h('.verbs', {}, button('verify', 'Verify', () => post(`${base}/verify`)),
            train && h('.verb', {}, field('Steps', steps), button('resume', 'Go on from here, as a new job', () => goOn(job, c, Number(steps.value)))),
            train && h('.verb', {}, field('Prompt', prompt), field('Tokens', tokens), button('sample', 'Sample',
                () => post(`${base}/sample`, { prompt: prompt.value, tokens: Number(tokens.value) }))),
            train && h('.verb', {}, field('Type', dtype), button('export', 'Export', () => post(`${base}/export`, { dtype: dtype.value })))),
        h('.buttons', {}, removable && button('delete', 'Delete…', async () => (await ui.confirm(`Delete the checkpoint of step ${c.step}?`,
            'Nothing brings it back.', 'Delete', true)) && remove(base), 'button.danger'),
        h('button', { type: 'button', autofocus: true, onclick: close }, 'Back')));
    dialog.addEventListener('close', () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
}

/* What was asked of checkpoints of this job: jobs of their own. */
function doings(id, signal, changed) {
    const list = h('ul.doings'), texts = new Map();
    let seen = '';
    async function sampled(job, el) {
        if (!texts.has(job.id)) {
            const logs = await get(`/v1/jobs/${job.id}/logs?tail=200`, signal);
            texts.set(job.id, (logs.lines ?? []).map((l) => l.text ?? l).join('\n').slice(0, SAMPLE_CHARS));
        }
        el.replaceChildren(texts.get(job.id));
        el.hidden = false;
    }
    function row(job) {
        const verb = job.labels['checkpoint-verb'], out = h('pre.sample', { tabindex: '0', hidden: true, 'aria-label': `sample of ${job.id}` });
        if (verb === 'sample' && job.state === 'succeeded')
            sampled(job, out).catch(() => {});
        return h('li', {}, h('span', {}, `${DID[verb] ?? verb} step ${ui.count(Number(job.labels['checkpoint-step']))} `), ui.pill(job.state), ' ',
            h('a', { href: `#/jobs/${job.id}` }, job.id), job.state === 'failed' && h('span.note', {}, ` ${job.outcome?.message ?? ''}`), out);
    }
    function show(jobs) {
        list.replaceChildren(...jobs.sort((a, b) => store.number(b) - store.number(a)).slice(0, TASKS_SHOWN).map(row));
    }
    async function update() {
        const of = [...store.jobs.values()].filter((j) => j.labels?.[OF] === id), sig = of.map((j) => j.id + j.state).join();
        if (sig === seen)
            return;
        const first = !seen;
        seen = sig;
        show(of);
        if (!first || of.length)
            changed();
    }
    get(`/v1/jobs?label=${OF}%3D${id}&limit=${TASKS_SHOWN}`, signal).then(({ jobs }) => {
        for (const j of jobs)
            if (!store.jobs.has(j.id))
                store.jobs.set(j.id, j);
        update();
    }, () => {});
    store.watch(update, signal);
    return list;
}

export function checkpointsPanel(job, signal) {
    const id = job.id, body = h('tbody'), none = h('p.note.pad', {}, 'None yet.'), rest = h('p.note.pad', { hidden: true });
    const heads = h('tr');
    const table = h('table.small', { hidden: true }, h('caption.sr', {}, 'Checkpoints, newest first'), h('thead', {}, heads), body);
    let now = job, asked = 0, shown = '';
    const all = doings(id, signal, () => update());
    const el = h('section.panel', { 'aria-label': 'Checkpoints', hidden: job.kind !== 'train' }, /* a command may have none */
        h('.panel-head', {}, h('h2', {}, 'Checkpoints')), ui.scroll('Checkpoints by step', table, none, rest), all);
    async function go(label, ask) {
        try {
            const made = await ask();
            if (made === false)
                return;
            if (label.startsWith('Go on'))
                location.hash = `#/jobs/${made.id}`;
            ui.toast(made?.id ? `${label.replace('…', '')}: ${made.id} does it.` : `${label.replace('…', '')}: a job of one device does it.`);
        } catch (e) {
            ui.toast(ui.sentence(e.message), 'error');
        }
    }
    async function update() {
        const mine = ++asked;
        try {
            let list = (await get(`/v1/jobs/${id}/checkpoints`, signal)).checkpoints;
            if (mine !== asked)
                return;
            list.sort((a, b) => b.step - a.step);
            list = list.filter((c, i) => c.state !== 'removed' || list.findIndex((o) => o.step === c.step) === i);
            const newest = Math.max(...list.filter((c) => c.state === 'complete').map((c) => c.step));
            el.hidden &&= !list.length;
            table.hidden = !list.length;
            none.hidden = !!list.length;
            rest.hidden = list.length <= SHOWN;
            text(rest, `The newest ${SHOWN} of ${ui.count(list.length)}.`);
            const sig = JSON.stringify(list);
            if (sig === shown) /* whoever is about to press a button finds it */
                return;
            shown = sig;
            const laid = list.some((c) => c.layout), coded = list.some((c) => c.archived || c.codec); /* a command's tell neither */
            heads.replaceChildren(...['Step', 'Size', laid && 'Layout', coded && 'Codec', 'Written', 'State'].filter(Boolean)
                .map((c) => h('th', { scope: 'col' }, c)), h('th', {}, h('span.sr', {}, 'Open')));
            body.replaceChildren(...list.slice(0, SHOWN).map((c) => h('tr', { 'data-state': c.state }, h('th.num', { scope: 'row' }, ui.count(c.step)),
                h('td', {}, ui.bytes(c.disk_bytes ?? c.stored_bytes ?? c.bytes)), laid && h('td', {}, c.layout ? ui.layout(c.layout) || 'one rank' : '–'),
                coded && h('td', {}, c.archived ? 'archived' : c.codec ?? '–'), h('td', { title: c.at && ui.fullTime(c.at) }, ui.ago(c.at)),
                h('td', {}, STATES[c.state] ?? '–'),
                h('td', {}, h('button.plain', { type: 'button', 'aria-label': `Checkpoint of step ${c.step}`,
                    onclick: () => openOne(now, c, newest, go) }, 'Open…')))));
        } catch (e) {
            if (e.name !== 'AbortError')
                text(none, ui.sentence(e.message));
        }
    }
    return { el, update, set(fresh) { now = fresh; } };
}
