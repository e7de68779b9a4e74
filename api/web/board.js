/* board - all charts of one or several jobs under one toolbar: smoothing, axes, a zoom that all share, marks, files
 *
 * A zoom asks the server for its range and stays until it is reset: points that come do not touch it. What is chosen is
 * kept in the address.
 */
import { get } from './api.js';
import { chart, nearest, save } from './chart.js';
import { definitions } from './scalars.js';
import { attempts } from './series.js';
import * as ui from './ui.js';
const { h, text } = ui;

const WAIT_MS = 100, DRAW_MS = 200, CSV_BUCKETS = 2000, GROUP_OPEN_MAX = 12;
let boards = 0;

const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 4 });
const clock = (s) => (s < 600 ? `${Math.round(s)} s` : s < 36000 ? `${Math.round(s / 60)} min` : `${Number((s / 3600).toPrecision(3))} h`);
const WAYS = {
    step: { label: 'Step', format: (v) => (Math.abs(v) < 1e6 ? v.toLocaleString('en') : compact.format(v)), of: (a) => a.step },
    t: { label: 'Time', format: clock, of: (a, s) => a.series.t?.mean.map((v) => (v === null ? null : v - start(s))) },
    tokens: { label: 'Tokens', format: (v) => ui.count(v), of: (a) => a.series.tokens?.mean },
};
const start = (s) => s.whole?.series.t?.mean.find((v) => v !== null) ?? 0;

/* What the address says behind "?". */
export function query() {
    return new URLSearchParams(location.hash.split('?')[1] ?? '');
}

function remember(changes) {
    const q = query();
    for (const [key, value] of Object.entries(changes))
        if (value === null)
            q.delete(key);
        else
            q.set(key, value);
    const words = decodeURIComponent(q.toString());
    history.replaceState(null, '', location.hash.split('?')[0] + (words ? `?${words}` : ''));
}

/* sources: [{s, label, color, dash}], s of series.js; name: of files. */
export function board(sources, { signal, train, name }) {
    const many = sources.length > 1, asked = query(), charts = new Map(), groups = new Map();
    const view = { smooth: Math.min(0.99, Math.max(0, Number(asked.get('smooth')) || 0)), log: asked.get('log') === '1',
        by: WAYS[asked.get('by')] ? asked.get('by') : 'step', marks: asked.get('marks') !== '0', zoom: null, find: '' };
    const tip = h('.chart-tip', { hidden: true, 'aria-hidden': 'true' });
    const shared = { view, tip, name, key: `board-${++boards}`, zoomed: (range) => zoom(range), x: null };
    let timer = null, wanted = asked.has('from') && asked.has('to') ? [Number(asked.get('from')), Number(asked.get('to'))] : null;

    /* --- the toolbar --- */

    const smoothing = h('input', { type: 'range', id: `${shared.key}-smooth`, min: 0, max: 0.99, step: 0.01, oninput: () => {
        view.smooth = Number(smoothing.value);
        set({ smooth: view.smooth || null });
    } });
    const weight = h('output', { for: smoothing.id });
    const chips = (label, all, chosen, choose) => h('.chips', { role: 'group', 'aria-label': label }, Object.entries(all).map(([key, words]) =>
        h('button.chip', { type: 'button', 'data-way': key, 'aria-pressed': String(chosen() === key), onclick: (e) => {
            choose(key);
            for (const b of e.currentTarget.parentElement.children)
                b.setAttribute('aria-pressed', String(b.dataset.way === chosen()));
        } }, words)));
    const ways = chips('Horizontal axis', { step: 'Step', t: 'Time', tokens: 'Tokens' }, () => view.by, (key) => {
        view.by = key;
        shared.x = null;
        zoom(null);
        set({ by: key === 'step' ? null : key });
    });
    const scale = chips('Vertical axis', { linear: 'Linear', log: 'Log' }, () => (view.log ? 'log' : 'linear'), (key) => {
        view.log = key === 'log';
        set({ log: view.log ? 1 : null });
    });
    const marking = h('input', { type: 'checkbox', id: `${shared.key}-marks`, onchange: () => {
        view.marks = marking.checked;
        set({ marks: view.marks ? null : 0 });
    } });
    const reset = h('button', { type: 'button', 'data-action': 'reset-zoom', onclick: () => zoom(null) }, 'Reset zoom');
    const ends = ['First', 'Last'].map((which) => h('input.step', { type: 'text', inputmode: 'numeric', placeholder: which.toLowerCase(),
        'aria-label': `${which} step shown`, onchange: () => {
            const [lo, hi] = ends.map((e) => (e.value.trim() === '' ? null : Number(e.value.replaceAll(',', ''))));
            if (lo !== null && hi !== null && lo < hi)
                zoom([lo, hi]);
        } }));
    const find = h('input', { type: 'search', placeholder: 'Find a metric', 'aria-label': 'Find a metric', oninput: () => {
        view.find = find.value.trim().toLowerCase();
        sift();
    } });
    const csv = h('button.plain', { type: 'button', 'data-action': 'csv', onclick: table }, 'CSV');
    const steps = h('span.range', {}, h('span.note', {}, 'Steps'), ends);
    const bar = h('.toolbar', { role: 'toolbar', 'aria-label': 'Charts', hidden: true }, h('label', { for: smoothing.id }, 'Smoothing'), smoothing,
        weight, ways, scale, h('label.check', { for: marking.id }, marking, 'Events'), steps, reset, h('span.grow'), find, csv);
    const holder = h('.chart-groups'), note = h('p.note.pad', { 'aria-live': 'polite' }, 'No steps yet.');
    smoothing.value = view.smooth;
    marking.checked = view.marks;

    function set(changes) {
        remember(changes);
        text(weight, view.smooth.toFixed(2));
        draw();
    }

    /* --- the zoom --- */

    const ready = () => sources.filter(({ s }) => s.whole);
    const xs = (s, a = s.shown) => (WAYS[view.by].of(a, s) ?? []);

    /* Of a range of x the steps of a job around it. */
    function stepsOf(s, [lo, hi]) {
        if (view.by === 'step')
            return [lo, hi];
        const x = xs(s, s.whole), { step } = s.whole, at = (v) => nearest(x, v);
        return [step[Math.max(0, at(lo) - 1)] ?? 0, step[Math.min(step.length - 1, at(hi) + 1)] ?? 0];
    }

    async function zoom(range) {
        view.zoom = range;
        tip.hidden = true;
        if (view.by === 'step')
            remember({ from: range ? Math.round(range[0]) : null, to: range ? Math.round(range[1]) : null });
        ends.forEach((e, i) => { e.value = range && view.by === 'step' ? Math.round(range[i]) : ''; });
        const late = setTimeout(draw, WAIT_MS); /* what is there, larger, unless the range comes sooner */
        try {
            await Promise.all(sources.map(({ s }) => s.whole && s.zoom(range && stepsOf(s, range))));
        } catch (e) {
            if (e.name !== 'AbortError')
                ui.toast(ui.sentence(e.message), 'error');
        } finally {
            clearTimeout(late);
            draw();
        }
    }

    /* --- the charts --- */

    function linesOf(def) {
        return ready().flatMap(({ s, label, color, dash }) => def.lines.map((l) => {
            const a = s.shown, made = { ...l, ...(many ? { label, color, dash } : {}) };
            if (l.key === 'eval') {
                const whole = s.whole, x = xs(s, whole);
                const at = (step) => (view.by === 'step' ? step : x[nearest(whole.step, step)]);
                const list = s.evals.filter((e) => view.by === 'step' || whole.step.length).map((e) => [at(e.step), e.loss])
                    .filter(([v]) => v !== null && v !== undefined);
                return { ...made, x: list.map(([v]) => v), y: list.map(([, v]) => v) };
            }
            const x = xs(s), c = a.series[l.key], kept = [];
            let last = -Infinity;
            x.forEach((v, i) => { /* as charts want it: growing */
                if (v !== null && v > last && c) {
                    kept.push(i);
                    last = v;
                }
            });
            const all = kept.length === x.length, pick = (column) => (all ? column : kept.map((i) => column[i]));
            return { ...made, x: c ? pick(x) : [], y: c ? pick(c.mean) : [],
                ...(c?.most && { least: pick(c.least), most: pick(c.most) }) };
        }));
    }

    function marksOf() {
        return ready().flatMap(({ s, label }) => [...s.checkpoints.map((c) => ({ ...c, kind: 'checkpoint', words: `Checkpoint of step ${ui.count(c.step)}` })),
            ...attempts(s)].filter((m) => !many || m.kind !== 'checkpoint').map((m) => {
            const x = xs(s, s.whole);
            return { ...m, x: view.by === 'step' ? m.step : x[nearest(s.whole.step, m.step)],
                ...(many && { label: `${label} ${m.label}`, words: `${label}: ${m.words}` }) };
        }));
    }

    function group(title) {
        if (!groups.has(title)) {
            const grid = h(title ? '.charts.even' : train && !many ? '.charts' : '.charts.even');
            const el = title ? h('details.more', {}, h('summary', {}, title), grid) : grid;
            groups.set(title, { el, grid });
            if (title) /* in the order they came, but those without a group first */
                holder.append(el);
            else
                holder.prepend(el);
        }
        return groups.get(title).grid;
    }

    function sift() {
        for (const c of charts.values())
            c.el.hidden = !!view.find && !c.title.toLowerCase().includes(view.find);
        for (const [title, g] of groups) {
            g.el.hidden = ![...g.grid.children].some((c) => !c.hidden);
            if (title && view.find)
                g.el.open = true;
        }
    }

    function drawNow() {
        timer = null;
        const there = ready();
        if (signal.aborted || !there.length)
            return;
        const { list, left } = definitions(there.map(({ s }) => s.shown), train, many);
        const some = there.some(({ s }) => s.whole.step.length);
        const way = WAYS[view.by];
        shared.x = { label: way.label.toLowerCase(), format: way.format, words: (x) => `${way.label.toLowerCase()} ${
            view.by === 'step' ? x.toLocaleString('en') : way.format(x)}` };
        for (const b of ways.children)
            b.hidden = b.dataset.way !== 'step' && !there.some(({ s }) => WAYS[b.dataset.way].of(s.whole, s)?.some((v) => v !== null));
        reset.disabled = !view.zoom;
        bar.hidden = !some;
        text(weight, view.smooth.toFixed(2));
        text(note, !some ? 'No steps yet.' : left ? `${ui.count(left)} more metrics are not shown; \`muster metrics\` prints all.` : '');
        if (many)
            list.forEach((d) => { d.group = d.group === 'More metrics' ? '' : d.group; });
        const ends = there.flatMap(({ s }) => [xs(s, s.whole).find((v) => v !== null), xs(s, s.whole).findLast((v) => v !== null)]);
        const [lo, hi] = [Math.min(...ends), Math.max(...ends)];
        shared.full = hi > lo ? [lo, hi] : [lo - 1, lo + 1];
        const marks = marksOf();
        if (some)
            for (const def of list) {
                let c = charts.get(def.title);
                if (!c) {
                    charts.set(def.title, c = chart(def.title, shared, signal));
                    group(def.group).append(c.el);
                    if (def.group && def.group !== 'More metrics' && charts.size <= GROUP_OPEN_MAX)
                        groups.get(def.group).el.open = true;
                }
                c.show(linesOf(def), marks);
            }
        if (view.find)
            sift();
        if (wanted && sources.every(({ s }) => s.whole)) { /* a range in the address */
            const range = wanted;
            wanted = null;
            zoom(range);
        }
    }

    /* Points may come by the hundred: a few pictures a second are enough. */
    function draw(atOnce = true) {
        if (atOnce)
            clearTimeout(timer);
        else if (timer !== null)
            return;
        timer = setTimeout(drawNow, atOnce ? 0 : DRAW_MS);
    }

    /* --- files --- */

    async function table() {
        const rows = [];
        try {
            for (const { s } of sources) {
                const range = view.zoom ? stepsOf(s, view.zoom).map((v) => Math.max(0, Math.round(v))) : null;
                const a = await get(`/v1/jobs/${s.id}/series?buckets=${CSV_BUCKETS}${range ? `&from=${range[0]}&to=${range[1]}` : ''}`, signal);
                delete a.series.v; /* of the lines' form */
                const head = ['job', 'step', 'lines', ...Object.entries(a.series).flatMap(([n, c]) => Object.keys(c).map((k) => (k === 'mean' ? n : `${n} ${k}`)))];
                const columns = Object.values(a.series).flatMap((c) => Object.values(c));
                rows.push(head, ...a.step.map((step, i) => [s.id, step, a.n[i], ...columns.map((c) => c[i] ?? '')]));
            }
        } catch (e) {
            if (e.name !== 'AbortError')
                ui.toast(ui.sentence(e.message), 'error');
            return;
        }
        /* A name that begins like a formula is none to a spreadsheet. */
        const quote = (v) => (typeof v === 'number' ? v : `"${String(v).replace(/^[=+@-]/, "'$&").replaceAll('"', '""')}"`);
        save(new Blob([rows.map((r) => r.map(quote).join(',')).join('\r\n') + '\r\n'], { type: 'text/csv' }), `${name}.csv`);
    }

    document.body.append(tip);
    signal.addEventListener('abort', () => { clearTimeout(timer); tip.remove(); }, { once: true });
    return { el: h('section.board', { 'aria-label': 'Charts' }, bar, note, holder), draw };
}
