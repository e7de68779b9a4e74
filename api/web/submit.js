/* submit - a spec written in the browser: fields completed from its schema, faults at their lines, the plan beside it */
import { get, postText } from './api.js';
import * as store from './store.js';
import * as ui from './ui.js';
import { brief, emit, lineOf, words } from './yaml.js';
const { h, text } = ui;

const WAIT_MS = 300, WORDS_MAX = 8, DRAFT = 'muster-draft';
const PARTS = [['weights', '--accent'], ['gradients', '--blue'], ['optimizer', '--violet'], ['activations', '--warm'], ['rest', '--dim']];

const EXAMPLE = `name: my-first
devices: {min: 1, max: 1}
command:
  argv: [/bin/sh, -c, "echo hello from $MUSTER_JOB; sleep 5"]
`;

/* --- the editor ------------------------------------------------------------------------------------------------------ */

function editor(schema, changed) {
    const area = h('textarea', { 'aria-label': 'Specification, YAML', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off',
        wrap: 'off', rows: 24, 'aria-describedby': 'editor-keys', 'aria-controls': 'editor-words' });
    const numbers = h('.numbers-of-lines', { 'aria-hidden': 'true' });
    const list = h('ul.words', { id: 'editor-words', role: 'listbox', 'aria-label': 'Completions', hidden: true });
    let found = [], typed = '', at = 0, bad = new Map();

    function number() {
        const n = area.value.split('\n').length;
        numbers.replaceChildren(...Array.from({ length: n }, (_, i) => h(bad.has(i) ? 'span.bad' : 'span', { title: bad.get(i) }, String(i + 1))));
        numbers.scrollTop = area.scrollTop;
    }

    function hide() {
        list.hidden = true;
        found = [];
        area.removeAttribute('aria-activedescendant');
    }

    function choose(i) {
        at = (i + found.length) % found.length;
        list.replaceChildren(...found.map((w, k) => h('li', { role: 'option', id: `word-${k}`, 'aria-selected': String(k === at),
            onmousedown: (e) => { e.preventDefault(); choose(k); take(); } }, h('b', {}, w.word), h('span.note', {}, ` ${w.note}`))));
        area.setAttribute('aria-activedescendant', `word-${at}`);
    }

    function offer(asked) {
        const before = area.value.slice(0, area.selectionStart).split('\n'), lines = area.value.split('\n'), n = before.length - 1;
        const all = words(schema, lines, n, before[n].length);
        found = all.all.slice(0, WORDS_MAX);
        typed = all.typed;
        if (!found.length || !(asked || typed))
            return hide();
        list.hidden = false;
        list.style.setProperty('--line', String(n + 1));
        list.style.setProperty('--scroll', `${area.scrollTop}px`);
        choose(0);
    }

    function insert(words) {
        if (!document.execCommand('insertText', false, words)) /* keeps what Ctrl-Z undoes */
            area.setRangeText(words, area.selectionStart, area.selectionEnd, 'end');
    }

    function take() {
        const w = found[at], line = area.value.slice(0, area.selectionStart).split('\n').pop();
        hide();
        insert(w.word.slice(typed.length) + (w.end && !/^\s*:/.test(area.value.slice(area.selectionStart)) ? w.end : ''));
        if (!line)
            hide();
        told();
    }

    function told() {
        number();
        changed(area.value);
    }

    area.addEventListener('input', (e) => {
        told();
        if (e.inputType?.startsWith('insertText') || e.inputType?.startsWith('delete'))
            offer(false);
    });
    area.addEventListener('blur', hide);
    area.addEventListener('scroll', () => { numbers.scrollTop = area.scrollTop; hide(); });
    area.addEventListener('keydown', (e) => {
        if (e.key === ' ' && e.ctrlKey)
            offer(true);
        else if (e.key === 'Enter' && list.hidden) { /* goes on below what stands above */
            const line = area.value.slice(0, area.selectionStart).split('\n').pop(), deeper = /:\s*$/.test(line) ? '  ' : '';
            insert(`\n${/^\s*/.exec(line)[0]}${deeper}`);
            told();
        } else if (list.hidden)
            return;
        else if (e.key === 'ArrowDown' || e.key === 'ArrowUp')
            choose(at + (e.key === 'ArrowDown' ? 1 : -1));
        else if (e.key === 'Tab' || e.key === 'Enter')
            take();
        else if (e.key === 'Escape')
            hide();
        else
            return;
        e.preventDefault();
    });
    return { el: h('.editor', {}, numbers, area, list), area,
        set(value) { area.value = value; hide(); told(); },
        mark(faults) {
            bad = faults;
            number();
        },
        go(line) {
            const start = area.value.split('\n').slice(0, line).reduce((n, l) => n + l.length + 1, 0);
            area.focus();
            area.setSelectionRange(start, start + (area.value.split('\n')[line] ?? '').length);
            area.scrollTop = Math.max(0, (line - 5) * 20);
        } };
}

/* --- the plan -------------------------------------------------------------------------------------------------------- */

function memory(plan) {
    const stages = plan.memory_mib ?? [], fullest = Math.max(...stages.map((s) => s.all)), limit = plan.memory_limit_mib;
    const most = limit && fullest > limit / 20 ? Math.max(limit, fullest) : fullest; /* small ones are seen, too */
    if (!stages.length)
        return [];
    return [h('h3', {}, 'Memory by stage'), h('p.note', {}, PARTS.map(([name, color]) => h('span.part-key', { style: { '--c': `var(${color})` } }, name))),
        h('ul.stages', {}, stages.map((s, i) => h('li', {}, h('span', {}, `Stage ${i}`, plan.layers ? h('span.note', {}, ` ${plan.layers[i]} layers`) : null),
            h('span.stack-bar', { role: 'img', 'aria-label': `stage ${i}: ${PARTS.map(([p]) => `${p} ${s[p]} MiB`).join(', ')}` },
                PARTS.map(([p, color]) => h('i', { style: { width: `${100 * s[p] / most}%`, background: `var(${color})` } }))),
            h('span.num', {}, ui.bytes(s.all * 1048576))))),
        plan.memory_limit_mib ? h('p.note', {}, `A device has ${ui.bytes(plan.memory_limit_mib * 1048576)} for it.`) : null];
}

function planView({ plan, spec }) {
    const starts = plan.starts_now ? 'at once' : plan.free_devices === undefined ? '–' : 'later';
    const steps = spec?.train?.steps, cell = (label, value, note) => h('.number', {}, h('dt', {}, label), h('dd', {}, value), note && h('dd.note', {}, note));
    return [h('dl.numbers', {}, cell('Starts', starts, plan.free_devices === undefined ? '' : `${plan.free_devices} free, wants ${spec?.devices?.min ?? 1}`),
        cell('Layout', ui.layout(plan.layout ?? plan) || 'one rank', plan.devices ? `${plan.devices} devices` : ''),
        plan.step_ms && cell('A step takes', ui.ms(plan.step_ms), plan.rates === 'measured' ? 'by measured rates' : 'by assumed rates'),
        plan.step_ms && steps && cell('Takes', ui.duration(plan.step_ms * steps / 1000), `${ui.count(steps)} steps`)),
    plan.fits === false && h('p.warn.pad', {}, ui.sentence(plan.why || 'it does not fit')),
    h('.pad', {}, memory(plan), plan.why && plan.fits !== false && h('p.note', {}, plan.why),
        plan.alternatives?.length > 0 && h('details', {}, h('summary', {}, `${plan.alternatives.length} other layouts`), h('ul.facts-list', {},
            plan.alternatives.slice(0, 8).map((a) => h('li.note', {}, a.why ?? JSON.stringify(a))))))].flat().filter(Boolean);
}

/* --- the page -------------------------------------------------------------------------------------------------------- */

async function beginning(schema, signal) {
    const id = /[?&]from=([^&]+)/.exec(location.hash)?.[1];
    if (!id)
        return { value: sessionStorage.getItem(DRAFT) || EXAMPLE };
    const job = await get(`/v1/jobs/${id}`, signal), { after, ...spec } = job.spec;
    const hidden = Object.values(spec.command?.env ?? {}).includes('***');
    return { id, name: job.name, value: emit(brief(spec, schema)),
        note: hidden ? 'Values of its variables are for its owner alone: they read *** here.' : '' };
}

function build(main, signal, schema, begin) {
    const status = h('p.note', { role: 'status', 'aria-live': 'polite' }), faults = h('ul.faults', { 'aria-label': 'Faults' });
    const plan = h('.plan-of', {}), stale = h('p.warn.pad', { hidden: true }, 'The plan of the text before its faults.');
    const send = h('button.primary', { type: 'button', 'data-action': 'submit', disabled: true, onclick: submit }, 'Submit job');
    const cli = h('button', { type: 'button', 'data-action': 'cli', onclick: copy }, 'Copy as CLI'), command = h('.as-cli', { hidden: true });
    const key = crypto.randomUUID?.() ?? String(Math.random());
    let timer = null, asked = 0, before = null, checked = null, last = null;
    const edit = editor(schema, changed);

    function show(e, lines) {
        const syntax = /line (\d+)/, all = e.errors.length ? e.errors : [{ pointer: '', message: e.message }], at = new Map();
        const rows = all.map((f) => ({ ...f, line: syntax.test(f.message) && !f.pointer ? Math.min(Number(syntax.exec(f.message)[1]), lines.length) - 1 : lineOf(lines, f.pointer) }));
        rows.forEach((f) => at.set(f.line, `${at.has(f.line) ? `${at.get(f.line)}; ` : ''}${f.message}`));
        edit.mark(at);
        faults.replaceChildren(...rows.sort((a, b) => a.line - b.line).map((f) => h('li', {}, h('button.plain', { type: 'button', onclick: () => edit.go(f.line) },
            `Line ${f.line + 1}`), h('code', {}, f.pointer.slice(1).replaceAll('/', '.')), ' ', ui.sentence(f.message))));
        text(status, `${rows.length} fault${rows.length > 1 ? 's' : ''}, the first in line ${rows[0].line + 1}.`);
    }

    async function check() {
        const mine = ++asked, value = edit.area.value;
        let answer = null;
        try {
            answer = await postText('/v1/jobs?dry_run=1', value, { signal });
        } catch (e) {
            if (e.name === 'AbortError' || mine !== asked)
                return;
            before = null;
            send.disabled = true;
            stale.hidden = !plan.firstChild;
            if (e.status >= 400 && e.status < 500 && e.status !== 401)
                show(e, value.split('\n'));
            else
                text(status, ui.sentence(e.message));
        }
        if (!answer || mine !== asked)
            return;
        checked = value;
        send.disabled = false;
        stale.hidden = true;
        faults.replaceChildren();
        edit.mark(new Map());
        text(status, 'No fault.');
        const sig = JSON.stringify(answer);
        if (sig !== before)
            plan.replaceChildren(...planView(answer));
        before = sig;
    }

    function changed(value) {
        if (value === last)
            return;
        last = value;
        sessionStorage.setItem(DRAFT, value);
        send.disabled = checked !== value;
        command.hidden = true;
        clearTimeout(timer);
        timer = setTimeout(check, WAIT_MS);
    }

    async function submit() {
        send.disabled = true;
        try {
            const made = await postText('/v1/jobs', edit.area.value, { headers: { 'Idempotency-Key': key } });
            sessionStorage.removeItem(DRAFT);
            location.hash = `#/jobs/${made.id}`;
        } catch (e) {
            ui.toast(ui.sentence(e.message), 'error');
            if (e.errors?.length)
                show(e, edit.area.value.split('\n'));
            send.disabled = false;
        }
    }

    function copy() {
        const body = edit.area.value.replace(/\n?$/, '\n');
        let end = 'END';
        while (body.split('\n').includes(end))
            end += 'D';
        command.hidden = false;
        command.replaceChildren(ui.commandLine(`muster submit - <<'${end}'\n${body}${end}`));
        command.querySelector('button').click();
    }

    main.replaceChildren(h('header.job-head', {}, h('a.back', { href: '#/' }, '← Jobs'), h('.job-title', {}, h('h1', {}, 'New job'),
        begin.id && h('span.note', {}, 'from ', h('a', { href: `#/jobs/${begin.id}` }, `${begin.name} ${begin.id}`)))),
    h('.submit-grid', {}, h('section.panel', { 'aria-label': 'Specification' }, h('.panel-head', {}, h('h2', {}, 'Specification'),
        h('a.note', { href: '/docs/spec' }, 'All fields')), begin.note && h('p.warn.pad', {}, begin.note), edit.el, faults,
    h('.editor-foot', {}, status, h('span.note', { id: 'editor-keys' }, 'Ctrl-Space completes, Tab takes it, Esc closes'))),
    h('section.panel', { 'aria-label': 'Plan' }, h('.panel-head', {}, h('h2', {}, 'Plan')), stale, plan, command,
        h('.editor-foot', {}, send, cli))));
    edit.set(begin.value);
    signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    store.watch(() => !document.hidden && checked === edit.area.value && edit.area.value && !timerRuns() && again(), signal);
    let due = 0;
    const timerRuns = () => Date.now() < due;
    function again() { /* devices come and go: the start is told anew, every five seconds at most */
        due = Date.now() + 5000;
        check();
    }
}

export function submitPage(main, signal) {
    main.replaceChildren(h('p.note.pad', {}, 'Reading…'));
    (async () => {
        const schema = await get('/v1/schema', signal);
        build(main, signal, schema, await beginning(schema, signal));
    })().catch((e) => e.name !== 'AbortError' && main.replaceChildren(h('h1.sr', {}, 'New job'), ui.problemBox(e, () => submitPage(main, signal))));
    return 'New job';
}
