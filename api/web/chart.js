/* chart - a metric by step, drawn with uPlot in the page's colours; grows as points come */
import { h } from './ui.js';

/* global uPlot */
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const HEIGHT = 234, POINTS_MAX = 4000;

/* title: heading; lines: [{key, label, format, color, points}] over steps. */
export function chart(title, lines, signal) {
    const holder = h('.chart-plot'), box = h('.chart-box', {}, holder), note = h('p.note.chart-empty', {}, 'No steps yet.');
    const el = h('section.panel.chart', { 'aria-label': title }, h('.panel-head', {}, h('h2', {}, title)), box, note);
    let data = [[], ...lines.map(() => [])], plot = null, pending = false;

    const axis = () => ({ stroke: css('--dim'), font: '11px ' + css('--mono'), grid: { stroke: css('--line'), width: 1 },
        ticks: { show: false }, size: 52 });

    function build() {
        plot?.destroy();
        plot = new uPlot({
            width: Math.max(holder.clientWidth, 200), height: HEIGHT,
            scales: { x: { time: false }, y: { range: (u, lo, hi) => spread(lo, hi) } },
            cursor: { points: { size: 7 }, y: false },
            legend: { live: true },
            axes: [{ ...axis(), size: 28, label: 'step', labelSize: 16, labelGap: -2, labelFont: '11px ' + css('--mono') }, { ...axis(), values: (u, v) => v.map(lines[0].tick ?? lines[0].format) }],
            series: [{ label: 'step', value: (u, v) => (v === null ? '–' : String(v)) },
                ...lines.map((l) => ({ label: l.label, stroke: css(l.color), width: l.points ? 0 : 1.6, spanGaps: true,
                    paths: l.points ? () => null : undefined,
                    points: { show: !!l.points, size: 7, width: 1.5, stroke: css(l.color), fill: css('--panel') },
                    value: (u, v) => (v === null || v === undefined ? '–' : l.format(v)) }))],
        }, data, holder);
    }

    function spread(lo, hi) {
        if (lo === null || lo === undefined || !isFinite(lo) || !isFinite(hi))
            return [0, 1];
        const pad = hi > lo ? (hi - lo) * 0.08 : Math.abs(hi) * 0.1 || 1;
        return [lo >= 0 && lo < (hi - lo) * 0.5 ? 0 : lo - pad, hi + pad];
    }

    function draw() {
        pending = false;
        const some = data[0].length > 0;
        note.hidden = some;
        box.hidden = !some;
        if (!some || signal.aborted)
            return;
        if (!plot)
            build();
        else
            plot.setData(data);
        box.dataset.points = data[0].length;
    }

    const redraw = () => {
        if (!pending) {
            pending = true;
            requestAnimationFrame(draw);
        }
    };

    /* columns: {step: […], key: […]} sorted by step. */
    function setColumns(columns) {
        data = [columns.step ?? [], ...lines.map((l) => (columns[l.key] ?? (columns.step ?? []).map(() => null)))];
        redraw();
    }

    /* One more point; a step that comes again (after a restart from a checkpoint) replaces what followed it. */
    function add(step, values) {
        const xs = data[0];
        const same = xs[xs.length - 1] === step;
        if (!same) {
            while (xs.length && xs[xs.length - 1] > step)
                data.forEach((column) => column.pop());
        }
        if (xs[xs.length - 1] !== step) {
            xs.push(step);
            lines.forEach((l, i) => data[i + 1].push(values[l.key] ?? null));
        } else {
            lines.forEach((l, i) => { data[i + 1][xs.length - 1] = values[l.key] ?? data[i + 1][xs.length - 1]; });
        }
        if (xs.length > POINTS_MAX)
            data = data.map((column) => column.filter((_, i) => i % 2 === 0 || i === column.length - 1));
        redraw();
    }

    /* Put a marker beside the points there are, whether or not its step is one of them. */
    function mark(step, key, value) {
        const k = lines.findIndex((l) => l.key === key) + 1;
        let at = data[0].findIndex((x) => x >= step);
        if (at < 0)
            at = data[0].length;
        if (data[0][at] !== step)
            data.forEach((column, i) => column.splice(at, 0, i ? null : step));
        data[k][at] = value;
        redraw();
    }

    const watchSize = new ResizeObserver(() => {
        if (plot && holder.clientWidth && plot.width !== holder.clientWidth)
            plot.setSize({ width: holder.clientWidth, height: HEIGHT });
    });
    watchSize.observe(holder);
    const recolor = () => { if (plot) build(); };
    document.addEventListener('muster-theme', recolor, { signal });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolor, { signal });
    signal.addEventListener('abort', () => { watchSize.disconnect(); plot?.destroy(); plot = null; }, { once: true });
    draw();
    return { el, setColumns, add, mark };
}
