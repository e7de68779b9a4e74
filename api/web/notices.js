/* notices - a user's webhooks: what they tell and to whom, what became of it, a new one, a test */
import { get, patch, post, remove } from './api.js';
import * as ui from './ui.js';
const { h, text } = ui;

const AGAIN_MS = 3000, TYPES = ['job.started', 'job.succeeded', 'job.failed', 'job.cancelled', 'job.suspended', 'job.recovering',
    'job.hung', 'job.slow', 'device.slow', 'node.lost', 'node.quarantined', 'node.repair', 'gpu.ill'], USUAL = ['job.succeeded', 'job.failed'];
const STATES = { delivered: 'is-succeeded', waiting: 'is-queued', failed: 'is-failed' };
const pathOf = (hook) => `/v1/webhooks/${encodeURIComponent(hook.id)}`;
const head = (names) => h('thead', {}, h('tr', {}, names.map((n) => h('th', { scope: 'col' }, n))));

function form(added) {
    const field = (name, label, props = {}) => h('label.field', {}, h('span.label', {}, label), h('input', { name, type: 'text', autocomplete: 'off', ...props }));
    const fault = h('p.warn', { role: 'alert' }), secret = h('div', { 'aria-live': 'polite' });
    const el = h('form.pad.options', { onsubmit: async (e) => {
        e.preventDefault();
        const data = new FormData(el), body = { name: data.get('name'), url: data.get('url').trim(), format: data.get('format'), on: data.getAll('on') };
        if (data.get('project'))
            body.project = data.get('project');
        if (data.get('scope'))
            body.scope = 'cluster';
        try {
            const made = await post('/v1/webhooks', body);
            text(fault, '');
            secret.replaceChildren(...made.secret ? [h('p.note', {}, `By this secret the receiver of ${made.name} checks signatures. It is not shown again.`), ui.commandLine(made.secret)] : []);
            el.reset();
            added(made);
        } catch (problem) {
            text(fault, ui.sentence(problem.message));
        }
    } }, h('.two', {}, field('name', 'Name', { required: true, maxlength: 63 }), field('url', 'Address: https://…, or mailto:… for mail', { required: true, maxlength: 2048 }),
        h('label.field', {}, h('span.label', {}, 'Form'), h('select', { name: 'format' }, ['json', 'slack', 'email'].map((f) => h('option', {}, f)))),
        field('project', 'Only jobs of this project', { maxlength: 63, placeholder: 'any' })),
    h('fieldset.n-types', {}, h('legend.label', {}, 'Tells of'), TYPES.map((t) => h('label.check', {}, h('input', { type: 'checkbox', name: 'on', value: t,
        checked: USUAL.includes(t) }), t))),
    h('label.check', {}, h('input', { type: 'checkbox', name: 'scope', value: 'cluster' }), 'Of the jobs of all users, of nodes and GPUs (for administrators)'),
    fault, h('.buttons', {}, h('button.primary', { type: 'submit' }, 'Add')), secret);
    return el;
}

export function noticesPage(main, signal) {
    const rows = h('tbody'), none = h('p.note.pad', {}, 'No webhook yet. One sends what happens to your jobs to an address, to Slack or by mail.');
    const table = h('table.small', {}, h('caption.sr', {}, 'Webhooks'), head(['Name', 'Sends to', 'Tells of', 'State', 'Waiting', 'What to do']), rows);
    const sent = h('tbody'), sentNone = h('p.note.pad', {}, 'Nothing was sent yet.'), title = h('h2', {});
    const sentTable = h('table.small', {}, h('caption.sr', {}, 'Deliveries'), head(['When', 'Notice', 'State', 'Tries', 'Answer', 'Next try']), sent);
    const deliveries = h('section.panel', { 'aria-label': 'Deliveries', hidden: true }, h('.panel-head', {}, title), ui.scroll('What was sent', sentTable, sentNone));
    let chosen = null, timer = null;

    async function act(what, done) {
        try {
            await what();
            if (done)
                ui.toast(done);
        } catch (e) {
            ui.toast(ui.sentence(e.message), 'error');
        }
        read();
    }

    function row(hook) {
        const button = (label, onclick, props = {}) => h('button.plain', { type: 'button', 'aria-label': `${label}: ${hook.name}`, onclick, ...props }, label);
        return h('tr', {}, h('th', { scope: 'row' }, hook.name, h('span.note', {}, ` ${hook.user}`)), h('td', {}, hook.url, h('span.note', {}, ` as ${hook.format}`)),
            h('td', {}, hook.on.join(', ') || 'jobs that name it', hook.scope === 'cluster' ? h('span.note', {}, ' of all users') : null,
                hook.project ? h('span.note', {}, ` in ${hook.project}`) : null),
            h('td', {}, !hook.enabled ? 'off' : hook.failing_since ? h('span.warn', {}, `failing since ${ui.when(hook.failing_since)}`) : 'on'),
            h('td.num', {}, hook.waiting), h('td.n-acts', {}, button('Send a test', () => act(async () => {
                await post(`${pathOf(hook)}/test`);
                chosen = hook;
            }, 'A test is on its way.'), { disabled: !hook.enabled }), button('Deliveries', () => { chosen = hook; read(); }),
            button(hook.enabled ? 'Switch off' : 'Switch on', () => act(() => patch(pathOf(hook), { enabled: !hook.enabled }))),
            button('Delete…', async () => await ui.confirm(`Delete ${hook.name}?`, 'What it was still to send is forgotten.', 'Delete', true) && act(() => remove(pathOf(hook))))));
    }

    function delivery(d) {
        const answer = d.status ? `${d.status} after ${d.ms} ms` : '–';
        return h('tr', {}, h('th', { scope: 'row' }, h('time', { datetime: d.at, title: ui.fullTime(d.at) }, ui.when(d.at))), h('td', {}, d.type),
            h('td', {}, h(`span.pill.${STATES[d.state]}`, {}, d.state)), h('td.num', {}, d.tries), h('td', {}, answer, d.why ? h('span.note', {}, ` ${d.why}`) : null),
            h('td', {}, d.state === 'waiting' && d.next_at ? ui.when(d.next_at) : '–'));
    }

    async function read() {
        clearTimeout(timer);
        try {
            const { webhooks } = await get('/v1/webhooks', signal), focus = document.activeElement?.getAttribute('aria-label');
            table.hidden = !webhooks.length;
            none.hidden = !!webhooks.length;
            rows.replaceChildren(...webhooks.map(row));
            chosen = webhooks.find((w) => w.id === chosen?.id) ?? null;
            if (focus && !rows.contains(document.activeElement))
                [...rows.querySelectorAll('button')].find((b) => b.getAttribute('aria-label') === focus)?.focus();
            deliveries.hidden = !chosen;
            if (chosen) {
                const list = (await get(`${pathOf(chosen)}/deliveries`, signal)).deliveries;
                text(title, `Deliveries of ${chosen.name}`);
                sentTable.hidden = !list.length;
                sentNone.hidden = !!list.length;
                sent.replaceChildren(...list.map(delivery));
            }
        } catch (e) {
            if (e.name === 'AbortError')
                return;
            none.hidden = false;
            text(none, ui.sentence(e.message));
        }
        if (!signal.aborted)
            timer = setTimeout(read, AGAIN_MS);
    }

    main.replaceChildren(h('h1', {}, 'Notices'), h('.stack', {}, h('section.panel', { 'aria-label': 'Webhooks' }, h('.panel-head', {}, h('h2', {}, 'Webhooks')),
        ui.scroll('All webhooks', table, none)), deliveries,
    h('section.panel', { 'aria-label': 'New webhook' }, h('.panel-head', {}, h('h2', {}, 'New webhook')), form((made) => { chosen = made; read(); }))));
    signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    read();
    return 'Notices';
}
