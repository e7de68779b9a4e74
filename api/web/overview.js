/* overview - totals, how devices were used and how long jobs waited, the table of jobs with filters, nodes, what needs a look */
import { pages } from './api.js';
import * as store from './store.js';
import { progress } from './tasks.js';
import * as ui from './ui.js';
const { h, text } = ui;

const FILTERS = [
    ['all', 'All', () => true],
    ['active', 'Active', (j) => ['starting', 'running', 'rescaling'].includes(j.state)],
    ['waiting', 'Waiting', ui.isWaiting],
    ['ended', 'Ended', ui.isEnded],
];
const DAY_S = 86400, USE_BUCKETS = 96, USE_AGAIN_MS = 300000, WAIT_BUCKETS = 24, LOOKS = 6, SOON_MS = 1500;
const ROWS = 50; /* shown at first, and more each time that is asked for */
let filter = 'all', words = '', rows = ROWS;

/* Columns from 0 to 1, null: not known. */
function spark(shares, label) {
    const ns = 'http://www.w3.org/2000/svg', el = document.createElementNS(ns, 'svg'), n = shares.length;
    const path = document.createElementNS(ns, 'path');
    for (const [key, value] of Object.entries({ class: 'spark', viewBox: `0 0 ${n} 100`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label }))
        el.setAttribute(key, value);
    path.setAttribute('d', shares.map((v, i) => (v ? `M${i} 100V${100 - 100 * v}h.8V100z` : '')).join(''));
    el.append(path);
    return el;
}

/* How long the jobs waited that started in the last 24 hours. */
function showWaits(cell, jobs) {
    const now = Date.now(), waits = jobs.filter((j) => j.started_at && now - Date.parse(j.started_at) < DAY_S * 1000)
        .map((j) => ({ at: Date.parse(j.started_at), s: (Date.parse(j.started_at) - Date.parse(j.submitted_at)) / 1000 })).sort((a, b) => a.s - b.s);
    const half = waits[Math.floor(waits.length / 2)]?.s, most = waits[Math.floor(0.9 * waits.length)]?.s;
    text(cell.value, waits.length ? ui.duration(half) : '–');
    text(cell.note, waits.length ? `9 of 10 within ${ui.duration(most)}` : 'none started in 24 h');
    const by = Array(WAIT_BUCKETS).fill(null), hour = DAY_S * 1000 / WAIT_BUCKETS;
    for (const w of waits) { /* the longest of each hour */
        const i = WAIT_BUCKETS - 1 - Math.min(WAIT_BUCKETS - 1, Math.floor((now - w.at) / hour));
        by[i] = Math.max(by[i] ?? 0, w.s);
    }
    const longest = Math.max(...by), sig = JSON.stringify(by.map(Math.round));
    if (cell.sig === sig)
        return;
    cell.sig = sig;
    cell.el.querySelector('.spark')?.remove();
    if (longest >= 1)
        cell.el.append(spark(by.map((v) => (v === null ? null : v / longest)), `longest wait by hour, ${ui.duration(longest)} at most`));
}

/* Who should be looked at: [words, link, since]. */
function looks() {
    const jobs = [...store.jobs.values()].filter((j) => !j.task), list = [];
    for (const j of jobs)
        if (j.slow?.length && !ui.isEnded(j))
            list.push([`${j.id}: ${j.slow[0].text}`, `#/jobs/${j.id}`, null]);
    for (const j of jobs.filter((x) => x.state === 'failed' && Date.now() - Date.parse(x.finished_at) < DAY_S * 1000).sort((a, b) => Date.parse(b.finished_at) - Date.parse(a.finished_at)))
        list.push([`${j.id} failed: ${j.outcome?.message ?? j.reason?.text ?? ''}`, `#/jobs/${j.id}`, j.finished_at]);
    for (const n of store.nodes.filter((x) => x.state !== 'ready'))
        list.push([`${n.id} is ${n.state}`, `#/nodes/${encodeURIComponent(n.id)}`, null]);
    const oldest = jobs.filter((j) => j.state === 'queued').sort((a, b) => Date.parse(a.submitted_at) - Date.parse(b.submitted_at))[0];
    if (oldest)
        list.push([`${oldest.id} has waited longest`, `#/jobs/${oldest.id}`, oldest.submitted_at]);
    return list.slice(0, LOOKS);
}

function totals() {
    const make = (label) => {
        const value = h('span.value', {}, '–'), note = h('span.note');
        return { el: h('.total', {}, h('span.label', {}, label), value, note), value, note };
    };
    const t = { devices: make('Devices busy'), running: make('Running'), waiting: make('Waiting'),
        ended: make('Ended') };
    const busy = ui.bar('devices busy'), use = make('Utilisation, 24 h'), wait = make('Median wait, 24 h');
    t.devices.el.append(busy);
    t.devices.el.after(use.el, wait.el);
    return {
        el: h('section.totals', { 'aria-label': 'Cluster totals' }, [t.devices, use, wait, t.running, t.waiting, t.ended].map((x) => x.el)),
        used(means) {
            const known = means.filter((v) => v !== null), mean = known.reduce((a, v) => a + v, 0) / known.length;
            text(use.value, known.length ? `${Math.round(mean)} %` : '–');
            text(use.note, known.length ? `now ${Math.round(known.at(-1))} %` : 'not measured yet');
            use.el.querySelector('.spark')?.remove();
            if (known.length)
                use.el.append(spark(means.map((v) => (v === null ? null : v / 100)), `use of the devices in the last 24 hours, ${Math.round(mean)} % on average`));
        },
        update() {
            const c = store.cluster;
            if (!c)
                return;
            const all = [...store.jobs.values()];
            showWaits(wait, all);
            text(t.devices.value, `${c.slots.busy} / ${c.slots.total}`);
            const away = store.nodes.filter((n) => n.state !== 'ready').flatMap((n) => n.slots).filter((s) => !s.job).length;
            text(t.devices.note, [...Object.entries(c.classes ?? {}).map(([name, n]) => `${n.free} of ${n.total} ${name} free`),
                away && `${away} on nodes that take no work`].filter(Boolean).join(', '));
            busy.set(c.slots.total ? c.slots.busy / c.slots.total : 0, 'running');
            text(t.running.value, ui.count((c.jobs.running ?? 0) + (c.jobs.starting ?? 0) + (c.jobs.rescaling ?? 0)));
            text(t.running.note, c.jobs.starting ? `${c.jobs.starting} starting` : '');
            text(t.waiting.value, ui.count((c.jobs.queued ?? 0) + (c.jobs.recovering ?? 0) + (c.jobs.suspended ?? 0)));
            text(t.waiting.note, [c.jobs.recovering && `${c.jobs.recovering} recovering`,
                c.jobs.suspended && `${c.jobs.suspended} suspended`].filter(Boolean).join(', '));
            text(t.ended.value, ui.count((c.jobs.succeeded ?? 0) + (c.jobs.failed ?? 0) + (c.jobs.cancelled ?? 0)));
            text(t.ended.note, c.jobs.failed ? `${c.jobs.failed} failed` : '');
        },
    };
}

const chosen = new Set(); /* ids of jobs to compare */

function row(job, choose) {
    const r = { id: job.id, pill: ui.pill(job.state), progress: ui.bar(`progress of ${job.name}`) };
    r.link = h('a.job-name', { href: `#/jobs/${job.id}` }, job.name);
    r.reason = h('span.note');
    r.steps = h('span.steps');
    r.cells = { loss: h('td.num.c-loss'), rate: h('td.num.c-rate'), devices: h('td.c-devices'), age: h('td.num.c-age') };
    r.layout = h('span.note');
    r.el = h('tr', {},
        h('th.c-job', { scope: 'row' }, h('input', { type: 'checkbox', 'aria-label': `Choose ${job.name}, ${job.id}`, checked: chosen.has(job.id),
            onchange: (e) => choose(job.id, e.target.checked) }), r.link, h('span.note.id', {}, `${job.id} · ${job.user}`)),
        h('td.c-state', {}, r.pill, r.reason),
        h('td.c-progress', {}, r.progress, r.steps),
        r.cells.loss, r.cells.rate, r.cells.devices, r.cells.age);
    return r;
}

function fill(r, job) {
    const p = job.progress, tasks = job.array && progress(job);
    const done = tasks ? tasks.share : p?.steps ? p.step / p.steps : job.state === 'succeeded' ? 1 : 0;
    const why = job.state === 'failed' ? job.outcome?.message ?? job.reason?.text
        : ui.isWaiting(job) || job.state === 'starting' ? job.reason?.text : '';
    ui.setPill(r.pill, job.state);
    text(r.reason, why);
    r.reason.title = why ?? '';
    r.progress.hidden = job.kind === 'command' && !tasks;
    r.progress.set(done, job.state);
    text(r.steps, tasks ? tasks.words : p?.steps ? `${ui.count(p.step)} / ${ui.count(p.steps)}`
        : p?.step ? `step ${ui.count(p.step)}` : job.kind === 'command' ? 'command' : '');
    text(r.cells.loss, ui.loss(p?.loss));
    text(r.cells.rate, job.state === 'running' && p?.tokens_per_s ? ui.count(p.tokens_per_s) : '–');
    const d = job.devices;
    text(r.cells.devices, d.assigned ? `${d.assigned}` : d.min === d.max ? `${d.min} wanted` : `${d.min}–${d.max} wanted`);
    if (ui.isEnded(job) && !d.assigned)
        text(r.cells.devices, ui.devicesHad(job));
    if (tasks)
        text(r.cells.devices, `${d.min === d.max ? d.min : `${d.min}–${d.max}`} each`);
    if (tasks?.running)
        r.cells.devices.append(h('span.note', {}, `${ui.count(tasks.running)} running`));
    const shape = job.kind === 'train' ? ui.layout(job.layout) : '';
    if (shape)
        r.cells.devices.append(h('span.note', {}, shape));
    text(r.cells.age, ui.ago(job.finished_at ?? job.started_at ?? job.submitted_at));
    r.cells.age.title = ui.fullTime(job.finished_at ?? job.started_at ?? job.submitted_at);
}

function table(choose) {
    const rows = new Map();
    const body = h('tbody');
    const el = h('table.jobs', {}, h('caption.sr', {}, 'Jobs, newest first'),
        h('thead', {}, h('tr', {}, h('th.c-job', { scope: 'col' }, 'Job'), h('th.c-state', { scope: 'col' }, 'State'),
            h('th.c-progress', { scope: 'col' }, 'Progress'), h('th.num.c-loss', { scope: 'col' }, 'Loss'),
            h('th.num.c-rate', { scope: 'col' }, 'Tokens/s'), h('th.c-devices', { scope: 'col' }, 'Devices'),
            h('th.num.c-age', { scope: 'col' }, 'When'))), body);
    return {
        el,
        update(shown) {
            const keep = new Set(shown.map((j) => j.id));
            for (const [id, r] of rows)
                if (!keep.has(id)) {
                    r.el.remove();
                    rows.delete(id);
                }
            shown.forEach((job, i) => {
                let r = rows.get(job.id);
                if (!r)
                    rows.set(job.id, r = row(job, choose));
                fill(r, job);
                if (body.children[i] !== r.el)
                    body.insertBefore(r.el, body.children[i] ?? null);
            });
        },
    };
}

/* j and k walk the rows, / goes to the search field. */
function keys(signal, search) {
    document.addEventListener('keydown', (e) => {
        if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName))
            return;
        const links = [...document.querySelectorAll('.job-name')];
        const at = links.indexOf(document.activeElement);
        if (e.key === '/') {
            e.preventDefault();
            search.focus();
        } else if (e.key === 'j' && links.length) {
            links[Math.min(at + 1, links.length - 1)].focus();
        } else if (e.key === 'k' && links.length) {
            links[Math.max(at - 1, 0)].focus();
        }
    }, { signal });
}

function nodeCards(box) {
    box.replaceChildren(...(store.nodes.length ? store.nodes.map((n) => h('.node', {},
        h('.node-head', {}, h('a', { href: `#/nodes/${encodeURIComponent(n.id)}` }, n.id), n.state === 'ready' ? null : ui.pill(n.state),
            h('span.note', {}, `${n.slots.filter((s) => s.job).length}/${n.slots.length}`)),
        ui.slotGrid(n))) : [ui.empty('No nodes yet', h('p', {}, 'Start an agent on a machine:'),
        ui.commandLine('muster-agent --server URL --token-file FILE --devices cpu:4'))]));
}

export function overview(main, signal) {
    const bar = h('.chosen', { hidden: true, 'aria-live': 'polite' });
    function choose(id, on) {
        chosen[on ? 'add' : 'delete'](id);
        bar.hidden = !chosen.size;
        bar.replaceChildren(h('span', {}, `${chosen.size} chosen: `), h('a', { href: `#/compare?jobs=${[...chosen].join(',')}` }, 'Compare'));
    }
    const sums = totals(), list = table(choose), nodeBox = h('.node-list');
    const chips = FILTERS.map(([name, label]) => h('button.chip', { type: 'button', 'data-filter': name,
        'aria-pressed': String(name === filter), onclick: () => { filter = name; rows = ROWS; update(); } }, label, h('span.n')));
    const search = h('input', { type: 'search', placeholder: 'Name, id, project, user', 'aria-label': 'Find jobs', value: words,
        oninput: () => { words = search.value; rows = ROWS; update(); } });
    const under = h('.under', { 'aria-live': 'polite' });
    const more = h('button', { type: 'button', onclick: () => { rows += ROWS; update(); } });
    const before = h('span.note', {}, 'Jobs that ended before these: ', h('code', {}, 'muster list --limit N'));
    const rest = h('p.rest', {}, more, before);
    let told = null;

    function tell(shown, all) {
        const what = !store.loaded ? store.fault?.message ?? 'reading' : !all ? 'no jobs' : !shown ? 'no match' : 'jobs';
        if (what === told) /* a button in it keeps the keyboard's focus */
            return;
        told = what;
        under.replaceChildren(...(store.fault && !store.loaded ? [ui.problemBox(store.fault, store.readAll)]
            : what === 'reading' ? [h('p.note.pad', {}, 'Reading…')]
                : what === 'no jobs' ? [ui.empty('No jobs yet', h('p', {}, 'Submit the first one from a terminal:'),
                    ui.commandLine('muster submit --follow -- echo it works'))]
                    : what === 'no match' ? [ui.empty('Nothing matches', h('button', { type: 'button', onclick: () => {
                        filter = 'all';
                        words = search.value = '';
                        update();
                    } }, 'Show all jobs'))] : []));
    }

    function update() {
        const all = [...store.jobs.values()].filter((j) => !j.task).sort((a, b) => store.number(b) - store.number(a));
        const want = words.trim().toLowerCase();
        const found = all.filter((j) => !want || [j.name, j.id, j.project, j.user].some((s) => s?.toLowerCase().includes(want)));
        const test = FILTERS.find(([name]) => name === filter)[2];
        const shown = found.filter(test);
        chips.forEach((chip, i) => {
            chip.setAttribute('aria-pressed', String(FILTERS[i][0] === filter));
            text(chip.lastChild, found.filter(FILTERS[i][2]).length);
        });
        sums.update();
        list.update(shown.slice(0, rows));
        list.el.hidden = !shown.length;
        more.hidden = shown.length <= rows;
        text(more, `Show ${Math.min(ROWS, shown.length - rows)} more of ${shown.length}`);
        before.hidden = !more.hidden || all.length < store.JOBS_KEPT;
        rest.hidden = more.hidden && before.hidden;
        tell(shown.length, all.length);
    }
    const lookList = h('ul.looks'), lookPanel = h('section.panel', { 'aria-label': 'Needs a look' }, h('.panel-head', {}, h('h2', {}, 'Needs a look')), lookList);
    let looked = null;
    function updateLooks() {
        const all = looks(), now = JSON.stringify(all);
        lookPanel.hidden = !all.length;
        if (now !== looked)
            lookList.replaceChildren(...all.map(([what, href, since]) => h('li', {}, h('a', { href, title: what }, what), since ? h('span.note', {}, ui.ago(since)) : null)));
        looked = now;
    }

    let timer = null;
    async function readUse() {
        try { /* a little more than a day: then the means of five minutes are read */
            const to = Math.floor(Date.now() / 1000), sum = Array(USE_BUCKETS + 1).fill(0), n = sum.slice();
            const nodes = await pages(`/v1/cluster/series?from=${to - DAY_S - 600}&buckets=${USE_BUCKETS}&limit=256`, 'nodes', 1000, signal);
            for (const d of nodes.flatMap((node) => node.devices))
                (d.use ?? d.busy ?? []).forEach((v, i) => {
                    if (v !== null) {
                        sum[i] += v;
                        n[i]++;
                    }
                });
            sums.used(sum.map((v, i) => (n[i] ? v / n[i] : null)).slice(0, USE_BUCKETS));
        } catch (e) {
            if (e.name === 'AbortError')
                return;
        }
        if (!signal.aborted)
            timer = setTimeout(readUse, USE_AGAIN_MS);
    }

    let sig = null;
    function updateNodes() {
        const now = JSON.stringify(store.nodes.map((n) => [n.id, n.state, n.slots.map((s) => [s.job, s.state])]));
        if (now !== sig && store.loaded)
            nodeCards(nodeBox);
        sig = store.loaded ? now : null;
    }

    chosen.clear();
    main.replaceChildren(h('h1.sr', {}, 'Overview'), sums.el, h('.columns', {},
        h('section.panel', { 'aria-label': 'Jobs' }, h('.panel-head', {}, h('h2', {}, 'Jobs'),
            h('.chips', { role: 'group', 'aria-label': 'Which jobs' }, chips), search), bar, list.el, rest, under),
        h('.stack', {}, lookPanel, h('section.panel.side', { 'aria-label': 'Nodes' }, h('.panel-head', {}, h('h2', {}, 'Nodes')), nodeBox))));
    store.watch(() => { update(); updateNodes(); updateLooks(); }, signal);
    const tick = setInterval(update, 5000);
    signal.addEventListener('abort', () => { clearInterval(tick); clearTimeout(timer); }, { once: true });
    timer = setTimeout(readUse, SOON_MS); /* what is seen first comes first */
    keys(signal, search);
    update();
    updateNodes();
    updateLooks();
    return 'Jobs';
}
