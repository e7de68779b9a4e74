/* compare - several jobs side by side: their curves over each other, their results, the fields in which their specs
 * differ; of an array: parallel coordinates of its values and results */
import { get, pages } from './api.js';
import { board, query } from './board.js';
import { parallel } from './parallel.js';
import { series } from './series.js';
import * as store from './store.js';
import * as ui from './ui.js';
const { h } = ui;

const CURVES_MAX = 12, TASKS_MAX = 500, EVENTS_MAX = 4000, BEST = 6;
const COLORS = ['--accent', '--blue', '--violet', '--warm', '--bad', '--dim'], DASHES = [undefined, [6, 4], [2, 3]];

const address = (ids) => `#/compare?jobs=${ids.join(',')}`;
const shown = (v) => (v === undefined ? '–' : typeof v === 'string' ? v : JSON.stringify(v));

/* {"train.optimizer.lr": 0.001, …} */
function flat(value, path = '', to = {}) {
    if (value && typeof value === 'object' && !Array.isArray(value))
        Object.entries(value).forEach(([k, v]) => flat(v, path ? `${path}.${k}` : k, to));
    else
        to[path] = value;
    return to;
}

/* The fields that are not equal: [field, values of the jobs]. */
export function differing(specs) {
    const all = specs.map((s) => flat(s)), fields = [...new Set(all.flatMap(Object.keys))].sort();
    return { fields: fields.length, rows: fields.map((f) => [f, all.map((a) => a[f])])
        .filter(([f, values]) => f !== 'name' && new Set(values.map((v) => JSON.stringify(v))).size > 1) };
}

/* What a job was given: its spec, and what its program says of its own arguments. */
const given = (j) => ({ ...j.spec, ...(j.config ? { config: j.config } : {}) });

/* Rows by a column; what has no value comes last. columns: [{label, of, words, less}], less: the least is the best. */
function table(caption, columns, rows, name) {
    let by = columns.find((c) => c.first) ?? columns[1], up = true;
    const body = h('tbody'), heads = columns.map((c) => h(c.of ? 'th.num' : 'th', { scope: 'col' }, c.of
        ? h('button.plain.sort', { type: 'button', onclick: () => { up = by === c ? !up : true; by = c; update(); } }, c.label) : c.label));
    function update() {
        const value = (r) => by.of(r) ?? null, sign = (up ? 1 : -1) * (by.less === false ? -1 : 1);
        const sorted = [...rows].sort((a, b) => (value(a) === null) - (value(b) === null) || sign * (value(a) - value(b)));
        heads.forEach((th, i) => (columns[i] === by ? th.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending')
            : th.removeAttribute('aria-sort')));
        const best = new Map(columns.filter((c) => c.of && c.less !== undefined).map((c) => {
            const values = rows.map(c.of).filter((v) => typeof v === 'number');
            return [c, values.length > 1 ? Math[c.less ? 'min' : 'max'](...values) : null];
        }));
        body.replaceChildren(...sorted.map((r) => h('tr', {}, columns.map((c, i) => (i === 0 ? h('th', { scope: 'row' }, c.cell(r))
            : h(c.of && best.get(c) === c.of(r) && best.get(c) !== null ? 'td.num.best' : 'td.num', {}, c.words(r)))))));
    }
    update();
    return { update, el: h('section.panel', { 'aria-label': caption }, h('.panel-head', {}, h('h2', {}, caption), name ?? null),
        h('.wide', { tabindex: '0', role: 'region', 'aria-label': `Table: ${caption}` },
            h('table.small', {}, h('caption.sr', {}, caption), h('thead', {}, h('tr', {}, heads)), body))) };
}

const seconds = (job) => (job.started_at ? ((job.finished_at ? Date.parse(job.finished_at) : Date.now()) - Date.parse(job.started_at)) / 1000 : null);
const hours = (job) => (seconds(job) === null ? null : seconds(job) / 3600 * (ui.devicesHad(job) || job.devices.assigned));

function results(jobs, label) {
    const best = (j) => (j.source.s.evals.length ? Math.min(...j.source.s.evals.map((e) => e.loss)) : null);
    return table('Results', [
        { label: 'Job', cell: label },
        { label: 'State', words: (j) => ui.pill(j.state) },
        { label: 'Best evaluation', of: best, less: true, words: (j) => ui.loss(best(j)) },
        { label: 'Loss', first: true, of: (j) => j.progress?.loss, less: true, words: (j) => ui.loss(j.progress?.loss) },
        { label: 'Steps', of: (j) => j.progress?.step, words: (j) => ui.count(j.progress?.step) },
        { label: 'Tokens/s', of: (j) => j.progress?.tokens_per_s, less: false, words: (j) => ui.count(j.progress?.tokens_per_s) },
        { label: 'Device hours', of: hours, less: true, words: (j) => (hours(j) === null ? '–' : hours(j).toFixed(hours(j) < 1 ? 4 : 1)) },
        { label: 'Took', of: seconds, less: true, words: (j) => ui.duration(seconds(j)) },
    ], jobs);
}

function differences(jobs) {
    const { fields, rows } = differing(jobs.map(given)), note = `${ui.count(rows.length)} of ${ui.count(fields)} fields`;
    return h('section.panel', { 'aria-label': 'What differs' }, h('.panel-head', {}, h('h2', {}, 'What differs'), h('span.note', {}, note)),
        rows.length ? h('.wide', { tabindex: '0', role: 'region', 'aria-label': 'Table: what differs' }, h('table.small', {},
            h('caption.sr', {}, 'Fields of the specifications and configurations that differ'),
            h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Field'), jobs.map((j) => h('th', { scope: 'col' }, j.id)))),
            h('tbody', {}, rows.map(([f, values]) => h('tr', {}, h('th', { scope: 'row' }, h('code', {}, f)),
                values.map((v) => h('td', {}, h('code', {}, shown(v)))))))))
            : h('p.note.pad', {}, 'Their specifications are equal.'));
}

/* Curves are labelled by the field that differs, where it is one. */
function labels(jobs) {
    const { rows } = differing(jobs.map(given)), one = rows.length === 1 ? rows[0] : null;
    return jobs.map((j, i) => (one ? `${j.id} ${one[0].split('.').at(-1)} ${shown(one[1][i])}` : `${j.id} ${j.name}`));
}

function compare(main, signal, jobs) {
    const named = labels(jobs);
    let all = null, list = null;
    const sources = jobs.map((j, i) => ({ label: named[i], color: COLORS[i % COLORS.length], dash: DASHES[Math.floor(i / COLORS.length) % 3],
        s: series(j.id, signal, (atOnce) => { all?.draw(atOnce); list?.update(); }) }));
    jobs.forEach((j, i) => { j.source = sources[i]; });
    all = board(sources, { signal, train: jobs.every((j) => j.kind === 'train'), name: `compare-${jobs.map((j) => j.id).join('-')}` });
    const label = (j) => [h(j.source.dash ? 'i.key.dashed' : 'i.key', { style: { '--c': `var(${j.source.color})` } }),
        h('a', { href: `#/jobs/${j.id}` }, j.name), h('span.note.id', {}, ` ${j.id} `),
        jobs.length > 1 && h('a.note', { href: address(jobs.filter((o) => o !== j).map((o) => o.id)), 'aria-label': `Leave ${j.id} out` }, 'leave out')];
    list = results(jobs, label);
    main.append(all.el, h('.job-grid', {}, list.el, differences(jobs)));
    const failed = (e) => e.name !== 'AbortError' && ui.toast(ui.sentence(e.message), 'error');
    for (const { s } of sources) {
        s.load().catch(failed);
        pages(`/v1/jobs/${s.id}/events?limit=500`, 'events', EVENTS_MAX, signal).then((events) => {
            s.evals.push(...events.filter((e) => e.type === 'eval' && typeof e.data?.loss === 'number').map((e) => e.data));
            all.draw();
            list.update();
        }).catch(failed);
    }
    store.watch((e) => {
        for (const j of jobs) {
            const fresh = store.jobs.get(j.id);
            if (fresh)
                Object.assign(j, fresh, { spec: j.spec });
            if (e?.type === 'metrics' && e.job === j.id)
                j.source.s.add(e.data);
        }
        list.update();
    }, signal);
}

/* The tasks of an array by their values and results. */
async function sweep(main, signal, id) {
    const tasks = await pages(`/v1/jobs?array=${encodeURIComponent(id)}&limit=100`, 'jobs', TASKS_MAX, signal);
    const names = [...new Set(tasks.flatMap((j) => Object.keys(j.task?.params ?? {})))];
    const loss = (j) => j.eval?.loss ?? j.progress?.loss ?? null;
    const columns = [
        { label: 'Task', cell: (j) => (j.id === j.task.id ? j.task.id : h('a', { href: `#/jobs/${j.id}` }, j.task.id)) },
        ...names.map((n) => ({ label: n, of: (j) => (typeof j.task.params?.[n] === 'number' ? j.task.params[n] : null),
            words: (j) => shown(j.task.params?.[n]) })),
        { label: 'Steps', of: (j) => j.progress?.step, words: (j) => ui.count(j.progress?.step) },
        { label: 'Loss', first: true, of: loss, less: true, words: (j) => ui.loss(loss(j)) },
        { label: 'State', words: (j) => ui.pill(j.state) },
    ];
    const started = tasks.filter((j) => j.id !== j.task.id && loss(j) !== null).sort((a, b) => loss(a) - loss(b)).slice(0, BEST);
    main.append(names.length ? parallel([...names.map((n) => ({ label: n, of: (j) => j.task.params?.[n] })), { label: 'loss', of: loss }],
        tasks.filter((j) => loss(j) !== null), (j) => j.task.id) : h('p.note.pad', {}, 'Its tasks have no values of their own.'));
    const best = started.length > 1 && h('a', { href: address(started.map((j) => j.id)) }, `Curves of the best ${started.length}`);
    main.append(table('Tasks', columns, tasks, best).el);
    if (tasks.length === TASKS_MAX)
        main.append(h('p.note.pad', {}, `The first ${TASKS_MAX} tasks; \`muster best ${id}\` looks at all.`));
}

async function build(main, signal) {
    const array = query().get('array'), ids = [...new Set((query().get('jobs') ?? '').split(',').filter(Boolean))];
    const title = h('h1', {}, array ? `Compare the tasks of ${array}` : `Compare ${ids.length} jobs`), add = h('input', { type: 'text',
        'aria-label': 'Job to add', placeholder: 'j17' });
    const form = h('form.add', { hidden: !!array, onsubmit: (e) => {
        e.preventDefault();
        location.hash = address([...ids, add.value.trim()]);
    } }, add, h('button', { type: 'submit' }, 'Add a job'));
    main.replaceChildren(h('header.job-head', {}, h('a.back', { href: '#/' }, '← Jobs'), h('.job-title', {}, title, h('.actions', {}, form))));
    if (array)
        return sweep(main, signal, array);
    if (!ids.length)
        return void main.append(ui.empty('Choose jobs to compare', h('p', {}, 'Mark them in the list of jobs, or add one here.')));
    if (ids.length > CURVES_MAX)
        main.append(h('p.note.pad', {}, `The first ${CURVES_MAX} of ${ids.length} jobs.`));
    const jobs = await Promise.all(ids.slice(0, CURVES_MAX).map((id) => get(`/v1/jobs/${encodeURIComponent(id)}`, signal)));
    const arrays = jobs.filter((j) => j.array);
    if (arrays.length)
        return void main.append(ui.empty(`${arrays[0].id} is an array`, h('a', { href: `#/compare?array=${arrays[0].id}` }, 'Compare its tasks')));
    compare(main, signal, jobs);
}

export function comparePage(main, signal) {
    build(main, signal).catch((e) => {
        if (e.name !== 'AbortError')
            main.append(ui.problemBox(e, () => comparePage(main, signal)));
    });
    return 'Compare';
}
