/* nodes - every node with its devices, what runs where, drain and undrain */
import { post, remove } from './api.js';
import * as store from './store.js';
import * as ui from './ui.js';
const { h, text } = ui;

async function drain(node) {
    const busy = new Set(node.slots.filter((s) => s.job).map((s) => s.job));
    const sure = await ui.confirm(`Drain ${node.id}?`, busy.size
        ? `${busy.size === 1 ? 'One job runs' : `${busy.size} jobs run`} here (${[...busy].join(', ')}). Jobs are moved away at a checkpoint; new work stays off.`
        : 'Nothing runs here. New work stays off until you undrain it.', 'Drain', false);
    if (sure)
        await act(node, 'drain', `${node.id} is draining`);
}

async function takeOff(node) {
    const words = node.state === 'lost' ? 'It is on the list again when its agent comes back.'
        : 'Its agent ends, and the node is on the list again when somebody starts it.';
    if (await ui.confirm(`Take ${node.id} off the list?`, words, 'Remove', true))
        await attempt(remove(path(node)), `${node.id} is off the list`);
}

const path = (node) => `/v1/nodes/${encodeURIComponent(node.id)}`;
const act = (node, verb, done) => attempt(post(`${path(node)}/${verb}`), done);

async function attempt(call, done) {
    try {
        await call;
        ui.toast(done);
        store.readAll();
    } catch (e) {
        ui.toast(ui.sentence(e.message), 'error');
    }
}

function jobsOn(node) {
    const by = new Map();
    for (const s of node.slots)
        if (s.job)
            by.set(s.job, (by.get(s.job) ?? 0) + 1);
    return [...by].map(([id, n]) => h('li', {},
        h('a', { href: `#/jobs/${id}` }, store.jobs.get(id)?.name ?? id), h('span.note', {}, ` ${id} · ${n} ${n === 1 ? 'device' : 'devices'}`)));
}

/* How the GPUs do, a row each; null on a node without. */
function gpuTable(node) {
    const gpus = node.slots.filter((s) => s.gpu);
    const known = (value, unit) => (value === null || value === undefined ? '–' : `${value}${unit}`);
    if (!gpus.length)
        return null;
    return ui.scroll(`GPUs of ${node.id}`, h('table.gpus', {}, h('thead', {}, h('tr', {},
        ...['Device', 'Use', 'Memory', 'Power', 'Temp.'].map((t) => h('th.num', { scope: 'col' }, t)))),
    h('tbody', {}, gpus.map(({ slot, gpu }) => h('tr', { title: `${gpu.name}, ${gpu.uuid}` },
        h('td.num', {}, slot), h('td.num', {}, known(gpu.utilization, ' %')),
        h('td.num', {}, `${gpu.memory_used_mib === null ? '–' : (gpu.memory_used_mib / 1024).toFixed(1)} / ${(gpu.memory_mib / 1024).toFixed(0)} GiB`),
        h('td.num', {}, known(gpu.power_w, ' W')), h('td.num', {}, known(gpu.temperature_c, ' °C')))))));
}

/* Why devices of the node take no work. */
function quarantine(node) {
    const bad = node.slots.filter((s) => s.state === 'quarantined');
    const ill = bad.filter((s) => s.gpu?.why), stale = bad.length - ill.length;
    return [...ill.map((s) => h('p.warn', {}, `Device ${s.slot} takes no work: ${s.gpu.why}.`)),
        stale ? h('p.warn', {}, `${stale} ${stale === 1 ? 'device is' : 'devices are'} quarantined: their last processes have not been seen to end.`) : null];
}

/* Slots that are slower than others of their class. */
function stragglers(node) {
    return node.slots.filter((s) => s.slow).map((s) => h('p.warn', {},
        `Device ${s.slot} is slow: ${s.slow.ratio.toFixed(1)} times as long as others of class ${s.class}. Taken last until ${ui.when(s.slow.retry_at)}.`));
}

export function nodeCard(node, seen) {
    const drained = node.state === 'draining' || node.state === 'drained';
    const leaves = node.state === 'lost' || node.state === 'drained';
    const classes = [...new Set(node.slots.map((s) => s.class))].join(', ');
    const list = jobsOn(node);
    return h('article.panel.node-card', { 'aria-label': `node ${node.id}` },
        h('.panel-head', {}, h('h2', {}, h('a', { href: `#/nodes/${encodeURIComponent(node.id)}` }, node.id)), ui.pill(node.state),
            leaves ? h('button.plain', { type: 'button', 'data-remove': node.id, onclick: () => takeOff(node) }, 'Remove') : null,
            h('button.plain', { type: 'button', 'data-node': node.id,
                onclick: () => (drained ? act(node, 'undrain', `${node.id} takes work again`) : drain(node)) },
            drained ? 'Undrain' : 'Drain')),
        h('.pad', {}, ui.slotGrid(node),
            ...quarantine(node), ...stragglers(node), gpuTable(node),
            list.length ? h('ul.plain-list', {}, list) : h('p.note', {}, node.state === 'ready' ? 'Idle.' : 'Nothing runs here.'),
            h('dl.facts', {}, ...[['Devices', `${node.slots.length} × ${classes || '–'}`], ['Address', node.address],
                ['Version', node.version], ['Last seen', seen],
                ...(node.state === 'draining' && node.drain_by ? [['To be left by', ui.when(node.drain_by)]] : [])]
                .flatMap(([k, v]) => [h('dt', {}, k), h('dd', {}, v || '–')]))));
}

export function nodesPage(main, signal) {
    const box = h('.cards');
    main.replaceChildren(h('h1', {}, 'Nodes'), box);
    const seen = new Map(); /* where each node's last word stands: it ages every second, the rest of a card stays */
    let sig = null;
    function rebuild() {
        const focused = box.contains(document.activeElement) ? ['data-node', 'data-remove', 'href'].map((name) => {
            const value = document.activeElement.getAttribute(name);
            return value && `[${name}="${CSS.escape(value)}"]`;
        }).find(Boolean) : null;
        seen.clear();
        for (const node of store.nodes)
            seen.set(node.id, h('span'));
        box.replaceChildren(...(store.nodes.length ? store.nodes.map((n) => nodeCard(n, seen.get(n.id))) : [ui.empty('No nodes yet',
            h('p', {}, 'Start a whole cluster on this machine:'), ui.commandLine('muster up --devices cpu:4'),
            h('p', {}, 'or an agent on another one:'),
            ui.commandLine('muster-agent --server URL --token-file FILE --devices cpu:4'))]));
        if (focused)
            box.querySelector(focused)?.focus();
    }
    function update() {
        if (!store.loaded) {
            sig = null;
            box.replaceChildren(store.fault ? ui.problemBox(store.fault, store.readAll) : h('p.note.pad', {}, 'Reading…'));
            return;
        }
        const now = JSON.stringify(store.nodes.map((n) => ({ ...n, last_seen: null })));
        if (now !== sig)
            rebuild();
        sig = now;
        for (const node of store.nodes)
            text(seen.get(node.id), ui.ago(node.last_seen));
    }
    store.watch(update, signal);
    update();
    return 'Nodes';
}
