/* chart - curves over one x axis, drawn with uPlot in the page's colours
 *
 * A line is {label, color, dash, format, x, y, least, most, points}: y by x, with the least and the most of what each y
 * stands for where that is known. The board (board.js) says what of it is seen: smoothing, axes, zoom, marks.
 */
import { h } from './ui.js';

/* global uPlot */
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const HEIGHT = 220, TABLE_ROWS = 60;
const short = (v) => String(Number(v.toPrecision(4)));

/* The moving mean of what was measured so far; weight 0: as it is. */
export function smooth(y, weight) {
    let mean = 0, share = 0;
    return y.map((v) => {
        if (v === null || v === undefined)
            return null;
        mean = weight * mean + (1 - weight) * v;
        share = weight * share + 1 - weight;
        return mean / share;
    });
}

const faint = (color) => `color-mix(in srgb, ${color} 30%, transparent)`;

/* One table of all lines over all their x. */
function join(lines, view) {
    const kept = (y) => (view.log ? y.map((v) => (v > 0 ? v : null)) : y);
    const tables = lines.map((l) => {
        const columns = [l.x, kept(l.points || !view.smooth ? l.y : smooth(l.y, view.smooth))];
        if (view.smooth && !l.points)
            columns.push(kept(l.y));
        if (l.most)
            columns.push(kept(l.least), kept(l.most));
        return columns;
    });
    const one = tables.every((t) => t[0] === tables[0][0]);
    return one ? [tables[0][0], ...tables.flatMap((t) => t.slice(1))] : uPlot.join(tables);
}

/* board: {view, key, tip, zoomed(lo, hi), x: {label, format}} of all charts that share their x axis. */
export function chart(title, board, signal) {
    const holder = h('.chart-plot', { role: 'img' }), box = h('.chart-box', {}, holder), legend = h('.chart-legend');
    const rows = h('.chart-table', { hidden: true, tabindex: '0', role: 'region', 'aria-label': `Table of ${title}` });
    const asTable = h('button.plain', { type: 'button', 'aria-pressed': 'false', 'aria-label': `Table of ${title}`,
        onclick: () => {
            rows.hidden = !rows.hidden;
            asTable.setAttribute('aria-pressed', String(!rows.hidden));
            tabulate();
        } }, 'Table');
    const asPng = h('button.plain', { type: 'button', 'aria-label': `${title} as a PNG picture`, onclick: picture }, 'PNG');
    const el = h('section.panel.chart', { 'aria-label': title }, h('.panel-head', {}, h('h2', {}, title), legend, asTable, asPng),
        box, rows);
    let lines = [], marks = [], plot = null, shape = '', seen = false, data = [[]];

    function spread(lo, hi) {
        if (lo === null || lo === undefined || !isFinite(lo) || !isFinite(hi))
            return [0, 1];
        const pad = hi > lo ? (hi - lo) * 0.08 : Math.abs(hi) * 0.1 || 1;
        return [lo >= 0 && lo < (hi - lo) * 0.5 ? 0 : lo - pad, hi + pad];
    }

    function seriesOf(view) {
        const list = [{}], bands = [];
        for (const l of lines) {
            const color = css(l.color), line = { stroke: color, width: 1.6, dash: l.dash, spanGaps: true, points: { show: false } };
            list.push(l.points ? { stroke: color, width: 0, spanGaps: true, paths: () => null,
                points: { show: true, size: 7, width: 1.5, stroke: color, fill: css('--panel') } } : line);
            if (view.smooth && !l.points)
                list.push({ ...line, stroke: faint(color), width: 1, dash: undefined });
            if (l.most) {
                list.push({ ...line, width: 0 }, { ...line, width: 0 });
                bands.push({ series: [list.length - 1, list.length - 2], fill: faint(color) });
            }
        }
        return { list, bands };
    }

    function build() {
        const { view } = board, { list, bands } = seriesOf(view), font = '11px ' + css('--mono');
        const axis = { stroke: css('--dim'), font, grid: { stroke: css('--line'), width: 1 }, ticks: { show: false }, size: 52 };
        plot?.destroy();
        plot = new uPlot({
            width: Math.max(holder.clientWidth, 200), height: HEIGHT, series: list, bands,
            scales: { x: { time: false, range: () => view.zoom ?? board.full },
                y: view.log ? { distr: 3 } : { range: (u, lo, hi) => spread(lo, hi) } },
            cursor: { y: false, points: { size: 7, fill: (u, i) => u.series[i].stroke(u, i) },
                sync: { key: board.key, setSeries: false }, drag: { x: true, y: false, setScale: false },
                bind: { dblclick: () => () => board.zoomed(null) } },
            legend: { show: false },
            axes: [{ ...axis, size: 28, values: (u, v) => v.map((x) => board.x.format(x)) },
                { ...axis, size: (u, v) => Math.max(44, 16 + 6.7 * Math.max(0, ...(v ?? []).map((t) => t.length))), values: (u, v) => v.map((y) => (y === null ? '' : (lines[0].tick ?? short)(y))) }],
            hooks: { draw: [drawMarks], setCursor: [point], setSelect: [select] },
        }, data, holder);
        plot.over.addEventListener('mouseleave', () => { board.tip.hidden = true; });
    }

    function select(u) {
        const { left, width } = u.select;
        if (width > 4 && u.over.matches(':hover'))
            board.zoomed([u.posToVal(left, 'x'), u.posToVal(left + width, 'x')]);
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    }

    /* Restarts and rescales as dashed lines, checkpoints as diamonds on the axis. */
    function drawMarks(u) {
        if (!board.view.marks)
            return;
        const { ctx, bbox } = u, dot = window.devicePixelRatio || 1;
        ctx.save();
        ctx.font = `${11 * dot}px ${css('--sans')}`;
        let free = -Infinity; /* words do not cover words */
        for (const m of marks) {
            const x = Math.round(u.valToPos(m.x, 'x', true));
            if (!(x >= bbox.left && x <= bbox.left + bbox.width))
                continue;
            ctx.beginPath();
            ctx.strokeStyle = ctx.fillStyle = css(m.kind === 'checkpoint' ? '--dim' : '--violet');
            if (m.kind === 'checkpoint') {
                const y = bbox.top + bbox.height, r = 4 * dot;
                ctx.moveTo(x, y - 2 * r);
                [[x + r, y - r], [x, y], [x - r, y - r]].forEach(([a, b]) => ctx.lineTo(a, b));
                ctx.closePath();
                ctx.fill();
                continue;
            }
            ctx.setLineDash([4 * dot, 4 * dot]);
            ctx.moveTo(x, bbox.top);
            ctx.lineTo(x, bbox.top + bbox.height);
            ctx.stroke();
            if (x > free) {
                ctx.fillText(m.label, x + 4 * dot, bbox.top + 11 * dot);
                free = x + ctx.measureText(m.label).width + 8 * dot;
            }
        }
        ctx.restore();
    }

    /* What the lines say where the pointer is. */
    function point(u) {
        if (!u.over.matches(':hover') || u.cursor.left < 0)
            return;
        const x = u.posToVal(u.cursor.left, 'x'), near = Math.abs(u.posToVal(u.cursor.left + 8, 'x') - x);
        const found = lines.map((l) => [l, nearest(l.x, x)]).filter(([l, i]) => i >= 0 && l.y[i] !== null);
        const mark = board.view.marks && marks.find((m) => Math.abs(m.x - x) < near);
        if (!found.length)
            return void (board.tip.hidden = true);
        const at = found[0][0].x[found[0][1]];
        board.tip.replaceChildren(h('p.note', {}, board.x.words(at, found[0][0])), h('table', {}, h('tbody', {}, found.map(([l, i]) =>
            h('tr', {}, h('th', { scope: 'row' }, key(l), l.label), h('td.num', {}, l.format(l.y[i])), l.most && l.most[i] > l.least[i]
                ? h('td.note', {}, `${l.format(l.least[i])} to ${l.format(l.most[i])}`) : null)))),
        ...(mark ? [h('p.note', {}, mark.words)] : []));
        board.tip.hidden = false;
        const r = u.over.getBoundingClientRect(), left = r.left + u.cursor.left, w = board.tip.offsetWidth;
        board.tip.style.setProperty('left', `${left + w + 24 > window.innerWidth ? left - w - 12 : left + 12}px`);
        board.tip.style.setProperty('top', `${r.top + 8}px`);
    }

    const key = (l) => h(l.points ? 'i.key.dots' : l.dash ? 'i.key.dashed' : 'i.key', { style: { '--c': `var(${l.color})` } });

    function tabulate() {
        if (rows.hidden)
            return;
        const xs = data[0], each = Math.ceil(xs.length / TABLE_ROWS) || 1;
        const at = (l, x) => (l.at ??= new Map(l.x.map((v, i) => [v, i]))).get(x);
        rows.replaceChildren(h('table.small', {}, h('caption.sr', {}, title), h('thead', {}, h('tr', {},
            h('th', { scope: 'col' }, board.x.label), ...lines.map((l) => h('th', { scope: 'col' }, l.label)))),
        h('tbody', {}, [...xs].filter((_, i) => i % each === 0 || i === xs.length - 1).map((x) => h('tr', {},
            h('th', { scope: 'row' }, board.x.format(x)), ...lines.map((l) => {
                const v = l.y[at(l, x)];
                return h('td', {}, v === null || v === undefined ? '–' : l.format(v));
            }))))));
    }

    function picture() {
        seen = true;
        draw();
        const from = plot?.ctx.canvas, dot = window.devicePixelRatio || 1;
        if (!from)
            return;
        const to = h('canvas', { width: from.width, height: from.height + 30 * dot }), ctx = to.getContext('2d');
        ctx.fillStyle = css('--panel');
        ctx.fillRect(0, 0, to.width, to.height);
        ctx.fillStyle = css('--text');
        ctx.font = `${13 * dot}px ${css('--sans')}`;
        ctx.fillText(`${title}: ${lines.map((l) => l.label).join(', ')}`, 10 * dot, 20 * dot);
        ctx.drawImage(from, 0, 30 * dot);
        to.toBlob((blob) => save(blob, `${board.name} ${title}.png`));
    }

    function spoken() {
        const saved = marks.filter((m) => m.kind === 'checkpoint').length;
        const words = marks.filter((m) => m.kind !== 'checkpoint').map((m) => `${m.label} at ${board.x.format(m.x)}`);
        return !board.view.marks ? '' : [...words, saved && `${saved} checkpoints`].filter(Boolean).map((w) => `; ${w}`).join('');
    }

    /* In words, for those who do not see the picture. */
    function describe() {
        const xs = data[0], words = lines.filter((l) => l.y.some((v) => v !== null)).map((l) => {
            const y = l.y.filter((v) => v !== null && v !== undefined);
            return `${l.label} from ${l.format(y[0])} to ${l.format(y.at(-1))}`;
        });
        holder.setAttribute('aria-label', `${title}, ${xs.length ? `${board.x.label} ${board.x.format(xs[0])} to ${
            board.x.format(xs.at(-1))}, ` : ''}${words.join(', ') || 'no points yet'}${spoken()}`);
        legend.replaceChildren(...lines.map((l) => h('span', {}, key(l), `${l.label} `,
            l.points || !l.y.length ? null : h('b', {}, l.format(l.y.findLast((v) => v !== null && v !== undefined) ?? NaN)))));
    }

    function draw() {
        if (!seen || signal.aborted || !lines.length)
            return;
        const { view } = board, now = JSON.stringify([view.smooth > 0, view.log, lines.map((l) => [l.label, l.color, !!l.most])]);
        data = join(lines, view);
        if (!plot || shape !== now) {
            shape = now;
            build();
        } else {
            plot.setData(data);
        }
        describe();
        tabulate();
    }

    const watchSize = new ResizeObserver(() => {
        if (plot && holder.clientWidth && plot.width !== holder.clientWidth)
            plot.setSize({ width: holder.clientWidth, height: HEIGHT });
    });
    watchSize.observe(holder);
    const watchSight = new IntersectionObserver(([e]) => { /* what nobody sees is not drawn */
        const first = e.isIntersecting && !seen;
        seen = e.isIntersecting;
        if (first)
            draw();
    }, { rootMargin: '200px' });
    watchSight.observe(el);
    const recolor = () => { shape = ''; draw(); };
    document.addEventListener('muster-theme', recolor, { signal });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolor, { signal });
    signal.addEventListener('abort', () => { watchSize.disconnect(); watchSight.disconnect(); plot?.destroy(); plot = null; },
        { once: true });
    return { el, title, show(newLines, newMarks) {
        lines = newLines;
        marks = newMarks;
        box.dataset.points = Math.max(0, ...lines.map((l) => l.x.length));
        draw();
    } };
}

/* The place of the x that is nearest, -1: there is none. */
export function nearest(xs, x) {
    let lo = 0, hi = xs.length - 1;
    while (hi - lo > 1) {
        const mid = (lo + hi) >> 1;
        if (xs[mid] < x)
            lo = mid;
        else
            hi = mid;
    }
    return hi < 0 ? -1 : Math.abs(xs[lo] - x) <= Math.abs(xs[hi] - x) ? lo : hi;
}

/* Give the browser a file to keep. */
export function save(blob, name) {
    const a = h('a', { href: URL.createObjectURL(blob), download: name.replace(/[^\w.-]+/g, '-') });
    a.click();
    setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}
