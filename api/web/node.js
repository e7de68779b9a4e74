/* node - one node: what it is, what runs on it, and how it and its devices did */
import { get } from './api.js';
import { chart } from './chart.js';
import { SPANS, spanChips } from './cluster.js';
import { nodeCard } from './nodes.js';
import * as store from './store.js';
import * as ui from './ui.js';
const { h } = ui;

const AGAIN_MS = 15000, BUCKETS = 300;
const COLORS = ['--accent', '--blue', '--violet', '--warm', '--dim', '--bad'];
let span = '1 h', boards = 0;

const percent = (v) => (v === null || Number.isNaN(v) ? '–' : `${Math.round(v)} %`);
const mib = (v) => (v === null || Number.isNaN(v) ? '–' : ui.bytes(v * 2 ** 20));
const rate = (v) => (v === null || Number.isNaN(v) ? '–' : `${ui.bytes(v * 1024)}/s`);
const plain = (v) => (v === null || Number.isNaN(v) ? '–' : String(Number(v.toPrecision(3))));
const unit = (u) => (v) => (v === null || Number.isNaN(v) ? '–' : `${Math.round(v)} ${u}`);

const HOST = [
    ['Processors', percent, [['cpu_percent', 'busy']]],
    ['Memory', mib, [['memory_mib', 'in use'], ['memory_total_mib', 'all', '--dim']]],
    ['Load', plain, [['load', 'processes']]],
    ['Network', rate, [['in_kib_s', 'in'], ['out_kib_s', 'out', '--blue']]],
    ['Disk of the jobs', mib, [['disk_free_mib', 'free']]],
];
const DEVICE = [['Use of the devices', 'use', percent], ['Time that jobs had the devices', 'busy', percent],
    ['Memory of the devices', 'memory', percent], ['Temperature', 'temperature_c', unit('°C')], ['Power', 'power_w', unit('W')]];

export function nodePage(main, signal, id) {
    const holder = h('.charts'), card = h('div'), tip = h('.chart-tip', { hidden: true, 'aria-hidden': 'true' }), charts = new Map();
    const view = { smooth: 0, log: false, zoom: null, marks: false };
    const time = (t) => (SPANS[span] > 86400 ? new Date(t * 1000).toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })
        : new Date(t * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' }));
    const board = { view, tip, name: id, key: `node-${++boards}`, full: [0, 1], zoomed: (range) => {
        view.zoom = range;
        draw();
    }, x: { label: 'time', format: time, words: (t) => ui.fullTime(t * 1000) } };
    let timer = null, answer = null;

    function lineOf(columns, x, label, color, format, dash) {
        const y = columns.mean ?? columns;
        return { label, color, dash, format, tick: format === plain ? undefined : format, x, y, ...(columns.most ? { least: y, most: columns.most } : {}) };
    }

    function draw() {
        if (!answer)
            return;
        const node = answer.nodes[0], columns = Object.values(node.host ?? {})[0]?.mean ?? [];
        const x = columns.map((_, i) => answer.from + i * answer.width_s);
        const wide = answer.width_s > 15; /* then a bucket has more than one sample */
        board.full = [answer.from, answer.to];
        const wanted = HOST.map(([title, format, lines]) => [title, lines.filter(([key]) => node.host[key].mean.some((v) => v !== null))
            .map(([key, label, color = '--accent']) => lineOf(wide ? node.host[key] : node.host[key].mean, x, label, color, format))]);
        for (const [title, key, format] of DEVICE)
            wanted.push([title, node.devices.filter((d) => d[key]).map((d, i) => lineOf(d[key], x, `device ${d.slot}`, COLORS[i % COLORS.length],
                format, i < COLORS.length ? undefined : [6, 3]))]);
        for (const [title, lines] of wanted) {
            if (lines.length && !charts.has(title)) {
                charts.set(title, chart(title, board, signal));
                holder.append(charts.get(title).el);
            }
            charts.get(title)?.show(lines, []);
        }
    }

    async function read() {
        clearTimeout(timer);
        try {
            answer = await get(`/v1/nodes/${encodeURIComponent(id)}/series?from=${Math.floor(Date.now() / 1000) - SPANS[span]}&buckets=${BUCKETS}`, signal);
            draw();
        } catch (e) {
            if (e.name === 'AbortError')
                return;
            if (!answer)
                holder.replaceChildren(ui.problemBox(e, read));
        }
        if (!signal.aborted)
            timer = setTimeout(() => (document.hidden ? timer = setTimeout(read, AGAIN_MS) : read()), AGAIN_MS);
    }

    let sig = null;
    function update() {
        const node = store.nodes.find((n) => n.id === id), now = JSON.stringify({ ...node, last_seen: null });
        if (now !== sig)
            card.replaceChildren(node ? nodeCard(node, h('span', {}, ui.ago(node.last_seen))) : h('p.note.pad', {}, store.loaded ? `There is no node ${id} now.` : 'Reading…'));
        sig = now;
    }
    main.replaceChildren(h('.page-head', {}, h('h1', {}, id), h('span.grow'), spanChips(span, (name) => {
        span = name;
        view.zoom = null;
        read();
    })), h('.stack', {}, card, holder));
    document.body.append(tip);
    signal.addEventListener('abort', () => { clearTimeout(timer); tip.remove(); }, { once: true });
    store.watch(update, signal);
    update();
    read();
    return id;
}
