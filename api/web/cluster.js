/* cluster - how devices were used, which jobs had them, and what the scheduler is going to do with them */
import { get, pages } from './api.js';
import * as store from './store.js';
import * as ui from './ui.js';
const { h } = ui;

export const SPANS = { '1 h': 3600, '6 h': 21600, '24 h': 86100, '30 d': 2591700 }; /* a sample less than is kept */
const BUCKETS = 120, AGAIN_MS = 15000, ROW_MIN = 34, DEVICE = 7, NODES_MOST = 256;
let span = '1 h';

/* From the series of a page of nodes: a list of rows {node, devices}. */
const readSeries = (from, signal) => pages(`/v1/cluster/series?from=${from}&buckets=${BUCKETS}`, 'nodes', NODES_MOST, signal,
    (page) => { for (const n of page.nodes) n.width = page.width_s; });

const seconds = (at) => (at ? Date.parse(at) / 1000 : null);

/* What each device of a node does from now on: [{job, from, to, planned}]; free: devices by when they come free. */
function ahead(nodes, plan, now) {
    const of = new Map(plan.jobs.map((j) => [j.job, j])), devices = [];
    for (const node of nodes)
        for (const s of node.slots) {
            const ends = s.job && (seconds(of.get(s.job)?.ends) ?? Infinity);
            devices.push({ node: node.id, slot: s.slot, class: s.class, bars: s.job ? [{ job: s.job, from: now, to: ends }] : [],
                free: node.state !== 'ready' || s.state === 'quarantined' ? Infinity : s.job ? ends : now });
        }
    const coming = plan.jobs.filter((j) => !j.runs && j.starts).sort((a, b) => seconds(a.starts) - seconds(b.starts));
    for (const j of coming) { /* on those that come free first, side by side where that is possible */
        const from = Math.max(now, seconds(j.starts)), to = seconds(j.ends) ?? Infinity;
        const fit = devices.filter((d) => j.classes.includes(d.class) && d.free <= from + 2);
        const room = new Map();
        fit.forEach((d) => room.set(d.node, (room.get(d.node) ?? 0) + 1));
        fit.sort((a, b) => (room.get(b.node) >= j.devices) - (room.get(a.node) >= j.devices) || a.node.localeCompare(b.node) || a.slot - b.slot);
        for (const d of fit.length < j.devices ? [] : fit.slice(0, j.devices)) {
            d.bars.push({ job: j.job, from, to, planned: true });
            d.free = to;
        }
    }
    return new Map(devices.map((d) => [`${d.node} ${d.slot}`, d.bars]));
}

/* Bars of neighbouring devices that are the same are one: {job, from, to, planned, first, last}. */
function join(rows, slack) {
    const done = [];
    let open = [];
    rows.forEach((bars, i) => {
        const next = [];
        for (const b of bars) {
            const same = open.find((o) => o.job === b.job && !o.planned === !b.planned && Math.abs(o.from - b.from) <= slack
                && (o.to === b.to || Math.abs(o.to - b.to) <= slack));
            if (same)
                same.last = i;
            else
                done.push({ ...b, first: i, last: i });
            next.push(same ?? done.at(-1));
        }
        open = next;
    });
    return done;
}

const value = (d, i) => d.use?.[i] ?? d.busy?.[i] ?? null;

function mean(devices) {
    const all = devices.flatMap((d) => (d.use ?? d.busy ?? []).filter((v) => v !== null));
    return all.length ? all.reduce((a, b) => a + b, 0) / all.length : null;
}

const share = (v) => (v === null ? '–' : `${Math.round(v)} %`);

function paint(canvas, devices) {
    const css = getComputedStyle(document.documentElement), ctx = canvas.getContext('2d');
    const colors = [0, 1, 2, 3, 4, 5].map((i) => css.getPropertyValue(`--h${i}`).trim());
    canvas.width = BUCKETS;
    canvas.height = Math.max(1, devices.length);
    devices.forEach((d, row) => {
        for (let i = 0; i < BUCKETS; i++) {
            const v = value(d, i);
            if (v === null)
                continue;
            ctx.fillStyle = colors[v <= 0 ? 0 : Math.min(5, 1 + Math.floor(v / 20.01))];
            ctx.fillRect(i, row, 1, 1);
        }
    });
}

/* Times along an axis: [[share, words]]. */
function ticks(from, to, count) {
    const steps = [300, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000];
    const each = steps.find((s) => (to - from) / s <= count) ?? 864000, shift = new Date().getTimezoneOffset() * 60;
    const first = Math.ceil((from - shift) / each) * each + shift, list = [];
    for (let t = first; t < to; t += each)
        list.push([(t - from) / (to - from), each >= 86400 ? new Date(t * 1000).toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })
            : new Date(t * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })]);
    return list;
}

const axis = (from, to, count) => h('.axis', { 'aria-hidden': 'true' }, ticks(from, to, count).map(([at, words]) =>
    h('span', { style: { left: `${100 * at}%` } }, words)));

const nameOf = (id) => store.jobs.get(id)?.name ?? '';

function barOf(b, n, from, to) {
    const left = Math.max(b.from, from), right = Math.min(b.to, to), at = (t) => 100 * (t - from) / (to - from);
    if (right <= left)
        return null;
    const words = `${b.job} ${nameOf(b.job)}`, until = isFinite(b.to) ? ui.when(b.to * 1000) : 'an unknown time';
    return h(b.planned ? 'a.gbar.planned' : 'a.gbar', { href: `#/jobs/${b.job}`, title: `${words}, ${b.planned ? 'planned ' : ''}from ${
        ui.when(b.from * 1000)} to ${until}`, 'aria-label': `${words}, ${b.planned ? 'planned, ' : ''}${b.last - b.first + 1} devices, until ${until}`,
    style: { left: `${at(left)}%`, width: `max(2px, ${at(right) - at(left)}%)`, top: `${100 * b.first / n}%`,
        height: `calc(${100 * (b.last - b.first + 1) / n}% - 1px)`, '--hue': ui.jobHue(b.job) } }, h('b', {}, b.job), ` ${nameOf(b.job)}`);
}

function rowOf(row, node, coming, from, now, to) {
    const devices = row.devices, n = Math.max(1, devices.length), height = Math.max(ROW_MIN, n * DEVICE);
    const canvas = h('canvas', { role: 'img', 'aria-label': `${row.node}: ${share(mean(devices))} of its ${n} devices used on average` });
    const bars = join(devices.map((d) => {
        const future = coming.get(`${row.node} ${d.slot}`) ?? [], past = d.runs.map((r) => ({ ...r }));
        const live = future.find((b) => !b.planned), last = past.at(-1);
        if (live && last?.job === live.job && now - last.to < 4 * row.width + 60)
            last.to = live.to;
        else if (live)
            past.push({ ...live });
        else if (last && last.to > now)
            last.to = now;
        return [...past, ...future.filter((b) => b.planned)];
    }), 3 * row.width);
    paint(canvas, devices);
    return [h('.crow-name', {}, h('a', { href: `#/nodes/${encodeURIComponent(row.node)}` }, row.node),
        node && node.state !== 'ready' ? ui.pill(node.state) : h('span.note', {}, share(mean(devices)))),
    h('.crow-heat', { style: { height: `${height}px` } }, canvas),
    h('.crow-gantt', { style: { height: `${height}px` } }, bars.map((b) => barOf(b, n, from, to)),
        h('i.now', { 'aria-hidden': 'true', style: { left: `${100 * (now - from) / (to - from)}%` } }))];
}

function comes(plan) {
    const list = plan.jobs.filter((j) => !j.runs).sort((a, b) => (seconds(a.starts) ?? Infinity) - (seconds(b.starts) ?? Infinity)).slice(0, 50);
    const words = { unknown: 'nobody knows', 'work-left': 'work left of what runs', 'time-limits': 'time limits of what runs',
        'next-round': 'the next full round', calendar: 'maintenance and reservations', reserved: 'devices kept for it', round: 'at once' };
    if (!list.length)
        return h('p.note.pad', {}, 'No job waits for devices.');
    return ui.scroll('Jobs that wait', h('table.small', {}, h('thead', {}, h('tr', {},
        ...['Job', 'Devices', 'Starts', 'After', 'By', 'Otherwise'].map((t) => h('th', { scope: 'col' }, t)))), h('tbody', {}, list.map((j) => h('tr', {},
        h('th', { scope: 'row' }, h('a', { href: `#/jobs/${j.job}` }, nameOf(j.job) || j.job), h('span.note', {}, ` ${j.job}`)),
        h('td', {}, j.devices), h('td', {}, j.starts ? ui.when(j.starts) : '–'), h('td', {}, j.after ?? '–'), h('td.note', {}, words[j.basis]),
        h('td', {}, h('a', { href: `#/what-if?job=${j.job}` }, 'What if')))))));
}

export const spanChips = (chosen, choose, names = Object.keys(SPANS)) => h('.chips', { role: 'group', 'aria-label': 'Time shown' },
    names.map((name) => h('button.chip', { type: 'button', 'aria-pressed': String(name === chosen), 'data-span': name, onclick: (e) => {
        for (const b of e.currentTarget.parentElement.children)
            b.setAttribute('aria-pressed', String(b === e.currentTarget));
        choose(name);
    } }, name)));

export function clusterPage(main, signal) {
    const note = h('span.note'), body = h('.pad'), next = h('section.panel', { 'aria-label': 'What comes' });
    const legend = h('span.legend', {}, h('span.note', {}, '0'), [0, 1, 2, 3, 4, 5].map((i) => h(`i.h${i}`, { 'aria-hidden': 'true' })),
        h('span.note', {}, '100 %'), h('span.note', {}, h('i.planned', { 'aria-hidden': 'true' }), ' planned'));
    let timer = null, last = null;
    main.replaceChildren(h('.page-head', {}, h('h1', {}, 'Cluster'), note, h('span.grow'), spanChips(span, (name) => { span = name; read(); }),
        h('a', { href: '#/what-if' }, 'What if…')),
    h('.stack', {}, h('section.panel', { 'aria-label': 'Devices' }, h('.panel-head', {}, h('h2', {}, 'Devices: their use, and who has them'), legend), body), next));

    function show() {
        const { rows, plan, now } = last, past = SPANS[span], from = now - past, nodes = new Map(store.nodes.map((n) => [n.id, n]));
        const ends = plan.jobs.flatMap((j) => [seconds(j.ends), seconds(j.starts)]).filter((t) => t && t > now);
        const to = now + Math.min(Math.max(past / 2, ...ends.map((t) => (t - now) * 1.05)), past * 2), coming = ahead(store.nodes, plan, now);
        const total = store.nodes.flatMap((n) => n.slots), busy = total.filter((s) => s.job).length;
        ui.text(note, `${store.nodes.length} ${store.nodes.length === 1 ? 'node' : 'nodes'}, ${total.length} devices: ${busy} busy; ${share(mean(rows.flatMap((r) => r.devices)))} in ${span}`);
        body.replaceChildren(rows.length ? h('.crows', {}, h('span'), axis(from, now, innerWidth < 720 ? 1 : 4), axis(from, to, innerWidth < 720 ? 3 : 8),
            rows.flatMap((r) => rowOf(r, nodes.get(r.node), coming, from, now, to)))
            : ui.empty('No nodes yet', h('p', {}, 'Start an agent on a machine:'), ui.commandLine('muster-agent --server URL --token-file FILE --devices cpu:4')),
        h('p.note', {}, 'To the right of the line: how long jobs still take at their pace or by their limit, and what the scheduler would do then.',
            rows.length >= NODES_MOST ? ` The first ${NODES_MOST} nodes are shown.` : ''));
        next.replaceChildren(h('.panel-head', {}, h('h2', {}, 'What comes')), comes(plan));
    }

    async function read() {
        clearTimeout(timer);
        try {
            const began = Math.floor(Date.now() / 1000);
            const [rows, plan] = await Promise.all([readSeries(began - SPANS[span], signal), get('/v1/cluster/plan', signal)]);
            last = { rows, plan, now: began };
            if (store.loaded)
                show();
        } catch (e) {
            if (e.name === 'AbortError')
                return;
            if (!last)
                body.replaceChildren(ui.problemBox(e, read));
        }
        if (!signal.aborted)
            timer = setTimeout(() => (document.hidden ? timer = setTimeout(read, AGAIN_MS) : read()), AGAIN_MS);
    }

    let seen = null;
    store.watch(() => { /* devices have changed hands */
        const sig = JSON.stringify(store.nodes.map((n) => [n.id, n.state, n.slots.map((s) => s.job)]));
        if (last && sig !== seen)
            show();
        seen = sig;
    }, signal);
    document.addEventListener('muster-theme', () => last && show(), { signal });
    signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    body.append(h('p.note', {}, 'Reading…'));
    read();
    return 'Cluster';
}
