/* tasks - the tasks of an array: a page of them by state, read again as their numbers change */
import { get } from './api.js';
import * as ui from './ui.js';
const { h, text } = ui;

const PAGE = 100;
const FILTERS = [['', 'All'], ['starting,running,rescaling,recovering', 'Running'], ['queued,suspended', 'Waiting'],
    ['succeeded', 'Succeeded'], ['failed', 'Failed'], ['cancelled', 'Cancelled']];

/* How many tasks have ended, and what to say of them. */
export function progress(job) {
    const { count, tasks } = job.array;
    const over = tasks.succeeded + tasks.failed + tasks.cancelled;
    const words = [`${ui.count(over)} of ${ui.count(count)} tasks`, tasks.failed && `${ui.count(tasks.failed)} failed`,
        tasks.cancelled && `${ui.count(tasks.cancelled)} cancelled`].filter(Boolean).join(', ');
    return { share: over / count, words, running: tasks.running + tasks.starting + tasks.rescaling + tasks.recovering };
}

function row(job) {
    const { id, index, params } = job.task;
    const values = params ? Object.entries(params).map(([name, v]) => `${name} ${v}`).join(', ') : '';
    const why = job.state === 'failed' ? job.outcome?.message ?? job.reason?.text : '';
    const name = job.id === id ? h('span', {}, id) : h('a.job-name', { href: `#/jobs/${job.id}` }, id);
    return h('tr', { 'data-task': index }, h('th', { scope: 'row' }, name, job.id === id ? null : h('span.note.id', {}, job.id)),
        h('td', {}, ui.pill(job.state), why ? h('span.note', { title: why }, why) : null), h('td', {}, values),
        h('td.num', {}, ui.loss(job.progress?.loss)), h('td.num', {}, job.progress ? ui.count(job.progress.step) : '–'));
}

export function tasksPanel(id, signal) {
    let states = '', shown = PAGE, told = '', timer = null, again = false;
    const body = h('tbody'), note = h('p.note.pad', { 'aria-live': 'polite' });
    const chips = FILTERS.map(([value, label]) => h('button.chip', { type: 'button', 'aria-pressed': String(!value),
        onclick: () => { states = value; shown = PAGE; soon(); } }, label));
    const more = h('button', { type: 'button', hidden: true, onclick: () => { shown += PAGE; soon(); } }, 'Show more');

    async function read() {
        chips.forEach((chip, i) => chip.setAttribute('aria-pressed', String(FILTERS[i][0] === states)));
        try {
            const list = [];
            let cursor = '';
            do {
                const page = await get(`/v1/jobs?array=${id}&limit=${PAGE}${states && `&state=${states}`}${cursor && `&cursor=${cursor}`}`, signal);
                list.push(...page.jobs);
                cursor = page.next_cursor ?? '';
            } while (cursor && list.length < shown);
            body.replaceChildren(...list.map(row));
            more.hidden = !cursor;
            text(note, list.length ? '' : 'No such tasks');
        } catch (e) {
            if (e.name !== 'AbortError')
                text(note, ui.sentence(e.message));
        }
    }
    /* Their numbers may change many times a second: they are read once in a second at most. */
    function soon() {
        if (timer)
            return void (again = true);
        read();
        timer = setTimeout(() => { timer = null; if (again) { again = false; soon(); } }, 1000);
    }
    signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    return {
        el: h('section.panel.tasks', { 'aria-label': 'Tasks' }, h('.panel-head', {}, h('h2', {}, 'Tasks'), h('a.note', { href: `#/compare?array=${id}` }, 'Compare'),
            h('.chips', { role: 'group', 'aria-label': 'Which tasks' }, chips)),
        h('.wide', { tabindex: '0', role: 'region', 'aria-label': 'Table of tasks' },
            h('table.small', {}, h('caption.sr', {}, 'Tasks by index'), h('thead', {}, h('tr', {},
                ...['Task', 'State', 'Values', 'Loss', 'Step'].map((name, i) => h(i > 2 ? 'th.num' : 'th', { scope: 'col' }, name)))),
            body)), note, more),
        update(job) {
            const now = JSON.stringify(job.array);
            if (now !== told)
                soon();
            told = now;
        },
    };
}
