/* whatif - when a job would start if it had another priority, took fewer devices, or there were more nodes */
import { post } from './api.js';
import * as store from './store.js';
import * as ui from './ui.js';
const { h } = ui;

const ASK_MS = 300;

export function whatIfPage(main, signal) {
    const asked = new URLSearchParams(location.hash.split('?')[1] ?? '').get('job');
    const jobs = h('select', { id: 'wi-job', onchange: ask });
    const number = (id, value, least, most) => h('input', { id, type: 'number', min: least, max: most, value, oninput: ask });
    const box = (id) => h('input', { id, type: 'checkbox', onchange: ask });
    const on = { priority: box('wi-p'), min: box('wi-m'), nodes: box('wi-n') };
    const priority = number('wi-priority', 80, 0, 100), min = number('wi-min', 1, 1, 100000);
    const nodes = number('wi-nodes', 1, 1, 1000), devices = number('wi-devices', 8, 1, 1024), cls = h('select', { id: 'wi-class', onchange: ask });
    const answer = h('.pad', { 'aria-live': 'polite' }, h('p.note', {}, 'Choose a job that waits, and what would be different.'));
    const others = h('section.panel', { 'aria-label': 'What others would feel', hidden: true });
    const option = (input, words, ...more) => h('.option', {}, h('label.check', { for: input.id }, input, words), ...more);
    const labelled = (el, words) => h('label.note', { for: el.id }, words, ' ', el);
    main.replaceChildren(h('.page-head', {}, h('h1', {}, 'What if'), h('label.note', { for: 'wi-job' }, 'Job '), jobs),
        h('.two', {}, h('section.panel', { 'aria-label': 'Changes' }, h('.panel-head', {}, h('h2', {}, 'What would be different')), h('.pad.options', {},
            option(on.priority, 'Another priority', labelled(priority, 'Priority')),
            option(on.min, 'Fewer devices are enough', labelled(min, 'At least')),
            option(on.nodes, 'More nodes', labelled(nodes, 'Nodes'), labelled(devices, 'Devices of each'), labelled(cls, 'Class')),
            h('p.note', {}, 'Nothing changes: the scheduler takes its next full round in thought.'))),
        h('section.panel', { 'aria-label': 'Answer' }, h('.panel-head', {}, h('h2', {}, 'When it would start')), answer)), others);

    let timer = null, turn = 0, listed = null;
    function ask() {
        clearTimeout(timer);
        timer = setTimeout(askNow, ASK_MS);
    }

    const time = (o) => (o.starts ? ui.when(o.starts) : 'nobody knows');

    async function askNow() {
        if (!jobs.value)
            return;
        const mine = ++turn, body = { job: jobs.value };
        if (on.priority.checked)
            body.priority = Number(priority.value);
        if (on.min.checked)
            body.min = Number(min.value);
        if (on.nodes.checked)
            body.add_nodes = { class: cls.value, nodes: Number(nodes.value), devices: Number(devices.value) };
        answer.classList.add('old');
        try {
            const a = await post('/v1/cluster/what-if', body);
            if (mine === turn && !signal.aborted)
                show(a);
        } catch (e) {
            if (mine === turn && !signal.aborted)
                answer.replaceChildren(ui.problemBox(e));
        }
        answer.classList.remove('old');
    }

    function show({ now, then, others: list }) {
        const gain = now.starts && then.starts ? (Date.parse(now.starts) - Date.parse(then.starts)) / 1000 : null;
        const cell = (label, value, note) => h('.total', {}, h('span.label', {}, label), h('span.value', {}, value), h('span.note', {}, note));
        const on = (o) => `on ${o.devices} ${o.devices === 1 ? 'device' : 'devices'}`;
        answer.replaceChildren(h('.answers', {}, cell('As it stands', time(now), on(now)), cell('As chosen', time(then), on(then)),
            cell('Gain', gain === null ? '–' : Math.abs(gain) < 1 ? 'none' : `${gain < 0 ? '−' : ''}${ui.duration(Math.abs(gain))}`,
                `${list.length} other ${list.length === 1 ? 'job' : 'jobs'} would feel it`)));
        others.hidden = !list.length;
        const at = (t) => (t ? ui.when(t) : '–');
        others.replaceChildren(h('.panel-head', {}, h('h2', {}, 'What others would feel')), ui.scroll('Other jobs', h('table.small', {}, h('thead', {}, h('tr', {},
            ...['Job', 'Starts now', 'Starts then', 'Devices now', 'Devices then'].map((t) => h('th', { scope: 'col' }, t)))),
        h('tbody', {}, list.slice(0, 200).map((o) => h('tr', {}, h('th', { scope: 'row' }, h('a', { href: `#/jobs/${o.job}` },
            store.jobs.get(o.job)?.name ?? o.job), h('span.note', {}, ` ${o.job}`)), h('td', {}, at(o.starts_now)), h('td', {}, at(o.starts_then)),
        h('td', {}, o.devices_now), h('td', {}, o.devices_then)))))));
    }

    function fill() {
        const list = [...store.jobs.values()].filter((j) => ui.isWaiting(j) || j.state === 'running');
        const classes = [...new Set(store.nodes.flatMap((n) => n.slots.map((s) => s.class)))].sort(), now = JSON.stringify([list.map((j) => j.id), classes]);
        if (now === listed)
            return;
        const keep = jobs.value || asked;
        list.sort((a, b) => ui.isWaiting(b) - ui.isWaiting(a) || store.number(a) - store.number(b));
        jobs.replaceChildren(h('option', { value: '' }, 'choose one'), ...list.map((j) => h('option', { value: j.id }, `${j.id} ${j.name}, ${j.state}`)));
        cls.replaceChildren(...classes.map((c) => h('option', { value: c }, c)));
        jobs.value = list.some((j) => j.id === keep) ? keep : '';
        if (listed === null && jobs.value)
            ask();
        listed = now;
    }
    signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    store.watch(fill, signal);
    if (store.loaded)
        fill();
    return 'What if';
}
