/* ranks - where a running job's ranks spend their steps: over time, by stage, and rank by rank in their layout */
import { get } from './api.js';
import * as ui from './ui.js';
const { h, text } = ui;

const AGAIN_MS = 5000, CELLS_MOST = 256, ROWS_MOST = 64;
const PARTS = [['compute', '--accent', ['compute_ms']], ['exchange', '--blue', ['tp_ms', 'pp_ms', 'dp_ms', 'cp_ms', 'other_ms']],
    ['data', '--violet', ['data_ms']], ['checkpoint stall', '--warm', ['save_ms']], ['rest', '--line-strong', ['rest_ms']]];
const sum = (o, fields) => fields.reduce((all, f) => all + (o[f] ?? 0), 0);
const SHOWN = { Compute: (r) => r.compute_ms, Exchange: (r) => sum(r, PARTS[1][2]), Stall: (r) => r.data_ms + r.save_ms, Memory: (r) => r.memory_percent };
const short = (v) => (v === null || v === undefined ? '–' : v >= 100 ? v.toFixed(0) : v.toFixed(1));
const svg = (tag, props) => {
    const el = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [key, value] of Object.entries(props))
        el.setAttribute(key, value);
    return el;
};
const words = (o) => PARTS.map(([name, , fields]) => `${name} ${short(sum(o, fields))} ms`).join(', ');

/* As long as its step takes, beside the longest. */
const stackBar = (o, longest, label) => h('span.stack-bar', label ? { role: 'img', 'aria-label': label } : { 'aria-hidden': 'true' }, PARTS.map(([, color, fields]) =>
    h('span', { style: { width: `${100 * sum(o, fields) / longest}%`, background: `var(${color})` } })));

/* A column a bucket, in a picture of 1000 by 100. */
function drawSeries(series, box) {
    const n = series.step.length, totals = series.step.map((_, i) => PARTS.reduce((all, [, , fields]) =>
        all + fields.reduce((s, f) => s + (series[f][i] ?? 0), 0), 0));
    const sorted = [...totals].sort((a, b) => a - b), most = Math.min(sorted.at(-1), 1.5 * (sorted[Math.floor(0.95 * (n - 1))] || Infinity));
    const picture = svg('svg', { viewBox: '0 0 1000 100', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    for (let i = 0; i < n; i++) {
        let at = 100;
        for (const [, color, fields] of PARTS) {
            const high = Math.min(at, 100 * fields.reduce((s, f) => s + (series[f][i] ?? 0), 0) / most);
            if (high > 0) {
                const rect = svg('rect', { x: 1000 * i / n, width: 1000 / n - 1, y: at - high, height: high });
                rect.style.fill = `var(${color})`;
                picture.append(rect);
            }
            at -= high;
        }
    }
    const last = series.step.at(-1) + series.width - 1, mean = (f) => short(series[f].reduce((a, v) => a + (v ?? 0), 0) / (series[f].filter((v) => v !== null).length || 1));
    box.replaceChildren(h('span.r-most.note', {}, ui.ms(most)), picture, h('.r-axis.note', {}, h('span', {}, `step ${ui.count(series.step[0])}`),
        h('span', {}, series.width > 1 ? `means of ${ui.count(series.width)} steps` : ''), h('span', {}, `step ${ui.count(last)}`)));
    box.setAttribute('aria-label', `Step time by part, step ${series.step[0]} to ${last}: compute ${mean('compute_ms')} ms, data ${
        mean('data_ms')} ms, checkpoint stall ${mean('save_ms')} ms on average`);
}

/* "stage 1 · replica 0 · tensor 1": tp varies fastest, then cp, dp, pp. */
function placeOf(l, rank) {
    const parts = [['stage', l.pp, Math.floor(rank / (l.tp * l.cp * l.dp))], ['replica', l.dp, Math.floor(rank / (l.tp * l.cp)) % l.dp],
        ['context', l.cp, Math.floor(rank / l.tp) % l.cp], ['tensor', l.tp, rank % l.tp]];
    return parts.filter(([, n]) => n > 1).map(([name, , i]) => `${name} ${i}`).join(' · ');
}

/* el: its ranks as a table; wide: what their steps are spent on, once they tell. */
export function ranksPanel(id, signal) {
    const body = h('tbody'), none = h('p.note.pad', {}, 'No devices now.');
    const table = h('table.small', {}, h('caption.sr', {}, 'Ranks and their devices'), h('thead', {}, h('tr', {},
        ...['Rank', 'Node', 'Device', 'Class'].map((c) => h('th', { scope: 'col' }, c)))), body);
    const el = h('section.panel', { 'aria-label': 'Ranks' }, h('.panel-head', {}, h('h2', {}, 'Ranks')), ui.scroll('Ranks and their devices', table, none));
    const chart = h('.r-chart', { role: 'img' }), stages = h('ul.stages'), grid = h('.r-grid'), note = h('span.note'), rows = h('tbody');
    const by = Object.keys(SHOWN).map((name, i) => h('button.chip', { type: 'button', 'aria-pressed': String(!i), onclick: () => {
        shown = name;
        by.forEach((b) => b.setAttribute('aria-pressed', String(b.textContent === name)));
        draw();
    } }, name));
    const of = h('select', { 'aria-label': 'Whose steps', onchange: () => read() });
    const all = h('details.r-table', {}, h('summary', {}, 'As a table'), ui.scroll('Parts of a step by rank',
        h('table.small', {}, h('caption.sr', {}, 'Parts of a step by rank, in milliseconds'), h('thead', {}, h('tr', {}, ...['Rank', 'Device', 'Place', 'Step', ...PARTS.map(([name]) => name[0].toUpperCase() + name.slice(1)),
            'MiB sent', 'Memory'].map((c) => h('th', { scope: 'col' }, c)))), rows)));
    const wide = h('section.panel.r-panel', { 'aria-label': 'Parts of a step', hidden: true }, h('.panel-head', {}, h('h2', {}, 'Where a step’s time goes'), note, of),
        h('.pad', {}, h('p.note', {}, PARTS.map(([name, color]) => h('span.part-key', { style: { '--c': `var(${color})` } }, name))), chart, stages,
            h('.toolbar', {}, h('span', {}, 'Ranks by'), h('.chips', { role: 'group', 'aria-label': 'Ranks by' }, by)), grid, all));
    let job = null, answer = null, shown = 'Compute', sig = null, timer = null, choices = '';

    function choose(value) {
        of.value = of.value === value ? '' : value;
        read();
    }

    function cell(r, least, most, layout, longest, slow) {
        const v = SHOWN[shown](r), level = v === null || !(most > 0) ? 0 : most - least < 0.05 * most ? 1 : 1 + Math.round(3 * (v - least) / (most - least));
        const bad = slow.find((s) => s.rank === r.rank), unit = shown === 'Memory' ? '%' : 'ms';
        return h(`button.r-rank.l${level}${bad ? '.slow' : ''}`, { type: 'button', 'aria-pressed': String(of.value === `rank=${r.rank}`), onclick: () => choose(`rank=${r.rank}`),
            title: bad ? bad.text : `${placeOf(layout, r.rank)} ${words(r)}`.trim(), 'aria-label': `rank ${r.rank} on ${r.node}, device ${r.slot}: ${words(r)}${bad ? `; ${bad.text}` : ''}` },
        h('span.r-name', {}, h('b', {}, r.rank), ` ${r.node}·${r.slot}`, bad ? h('span.warn', {}, ' slow') : null),
        h('span.r-value', {}, short(v), v === null ? '' : h('span.note', {}, ` ${unit}`)), stackBar(r, longest));
    }

    function draw() {
        const { ranks, series } = answer, known = ranks.filter((r) => r.step_ms !== null);
        wide.hidden = !known.length || !series.step.length;
        el.hidden = !wide.hidden;
        if (wide.hidden)
            return;
        const longest = Math.max(...known.map((r) => sum(r, PARTS.flatMap((p) => p[2])))), layout = job.layout ?? { tp: 1, pp: 1, cp: 1, dp: ranks.length };
        const values = ranks.map(SHOWN[shown]).filter((v) => typeof v === 'number'), least = Math.min(...values), most = Math.max(...values), slow = job.slow ?? [];
        text(note, `attempt ${answer.attempt}`);
        drawSeries(series, chart);
        stages.hidden = answer.stages.length < 2;
        stages.replaceChildren(...answer.stages.map((s) => h('li', {}, h('span', {}, `Stage ${s.stage}`, h('span.note', {}, ` ${s.ranks} ranks`)),
            stackBar(s, longest, `stage ${s.stage}: ${words(s)}`), h('span.num', {}, s.step_ms === null ? '–' : ui.ms(s.step_ms)))));
        const focus = grid.contains(document.activeElement) ? [...grid.querySelectorAll('button')].indexOf(document.activeElement) : -1;
        grid.style.setProperty('--columns', Math.min(8, ranks.length / answer.stages.length));
        grid.replaceChildren(...ranks.slice(0, CELLS_MOST).map((r) => cell(r, least, most, layout, longest, slow)),
            ...ranks.length > CELLS_MOST ? [h('p.note', {}, `The first ${CELLS_MOST} of ${ranks.length}; muster show ${id} --ranks shows all.`)] : []);
        grid.querySelectorAll('button')[focus]?.focus();
        rows.replaceChildren(...[...ranks].sort((a, b) => (b.step_ms - b.rest_ms - sum(b, PARTS[1][2])) - (a.step_ms - a.rest_ms - sum(a, PARTS[1][2]))).slice(0, ROWS_MOST).map((r) => h('tr', {},
            h('th', { scope: 'row' }, r.rank), h('td', {}, `${r.node} · ${r.slot}`), h('td', {}, placeOf(layout, r.rank) || '–'), h('td.num', {}, short(r.step_ms)),
            PARTS.map(([, , fields]) => h('td.num', {}, r.step_ms === null ? '–' : short(sum(r, fields)))), h('td.num', {}, r.sent_kib === null ? '–' : short(r.sent_kib / 1024)),
            h('td.num', {}, r.memory_percent === null ? '–' : `${r.memory_percent} %`))));
        const names = JSON.stringify([answer.stages.length, ranks.length]);
        if (names !== choices) {
            const was = of.value;
            of.replaceChildren(h('option', { value: '' }, 'Mean of all ranks'), ...answer.stages.length > 1 ? answer.stages.map((s) => h('option', { value: `stage=${s.stage}` }, `Stage ${s.stage}`)) : [],
                ...ranks.slice(0, CELLS_MOST).map((r) => h('option', { value: `rank=${r.rank}` }, `Rank ${r.rank}`)));
            of.value = was;
            choices = names;
        }
    }

    async function read() {
        clearTimeout(timer);
        timer = null;
        if (signal.aborted || !job || ui.isEnded(job) || !job.assignment?.length)
            return;
        if (!document.hidden)
            try {
                answer = await get(`/v1/jobs/${id}/ranks${of.value && `?${of.value}`}`, signal);
                for (const list of ['ranks', 'stages'])
                    answer[list] = answer[list].map((r) => ({ ...r, ...r.parts }));
                draw();
            } catch (e) {
                if (e.name === 'AbortError')
                    return;
                if (e.status === 422) /* it has fewer ranks now */
                    of.value = '';
            }
        timer = setTimeout(read, AGAIN_MS);
    }

    signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    return { el, wide, update(fresh) {
        const ranks = fresh.assignment ?? [], now = JSON.stringify(ranks);
        job = fresh;
        if (!ranks.length) {
            wide.hidden = true;
            el.hidden = false;
        }
        if (!timer && ranks.length)
            read();
        if (now === sig)
            return;
        sig = now;
        table.hidden = !ranks.length;
        none.hidden = !!ranks.length;
        body.replaceChildren(...ranks.map((a) => h('tr', {}, h('th.num', { scope: 'row' }, a.rank), h('td', {}, a.node),
            h('td.num', {}, a.slot), h('td', {}, a.class))));
    } };
}
