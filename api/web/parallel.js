/* parallel - parallel coordinates: an axis for each value, a line for each task, coloured from the best to the worst */
import { h } from './ui.js';

const WIDTH = 900, HEIGHT = 300, TOP = 34, BOTTOM = 24, SIDE = 70;
const short = (v) => (typeof v === 'number' ? String(Number(v.toPrecision(3))) : String(v));

function svg(tag, props, ...children) {
    const el = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [key, value] of Object.entries(props))
        el.setAttribute(key, value);
    el.append(...children);
    return el;
}

/* Where values stand on an axis, from 0 below to 1 above: numbers by size, by their logarithm where they span decades. */
export function scaleOf(values) {
    const known = values.filter((v) => v !== null && v !== undefined);
    if (known.every((v) => typeof v === 'number')) {
        const lo = Math.min(...known), hi = Math.max(...known), log = lo > 0 && hi / lo >= 50;
        const by = log ? Math.log : Number;
        return { ticks: lo === hi ? [lo] : [lo, hi], log, at: (v) => (hi > lo ? (by(v) - by(lo)) / (by(hi) - by(lo)) : 0.5) };
    }
    const all = [...new Set(known.map(String))];
    return { ticks: all, log: false, at: (v) => (all.length > 1 ? all.indexOf(String(v)) / (all.length - 1) : 0.5) };
}

/* axes: [{label, of(task)}], the last is the result, of which the least is the best. */
export function parallel(axes, tasks, name) {
    const scales = axes.map((a) => scaleOf(tasks.map(a.of))), result = axes.at(-1), n = axes.length;
    const x = (i) => SIDE + i * (WIDTH - 2 * SIDE) / Math.max(1, n - 1), y = (i, v) => HEIGHT - BOTTOM - scales[i].at(v) * (HEIGHT - TOP - BOTTOM);
    const picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: 'parallel', role: 'img', 'aria-label':
        `Values and ${result.label} of ${tasks.length} tasks; the table below has the same` });
    const ranked = [...tasks].sort((a, b) => result.of(b) - result.of(a)); /* the best is drawn last, above the others */
    ranked.forEach((task, k) => {
        const points = axes.map((a, i) => [x(i), a.of(task), i]).filter(([, v]) => v !== null && v !== undefined)
            .map(([px, v, i]) => `${px.toFixed(1)},${y(i, v).toFixed(1)}`).join(' ');
        const line = svg('polyline', { points, 'data-task': name(task) }, svg('title', {}, `${name(task)}: ${
            axes.map((a) => `${a.label} ${a.of(task) === undefined ? '–' : short(a.of(task))}`).join(', ')}`));
        line.style.setProperty('--share', `${Math.round(100 * (k + 1) / ranked.length)}%`);
        picture.append(line);
    });
    axes.forEach((a, i) => {
        picture.append(svg('line', { x1: x(i), x2: x(i), y1: TOP, y2: HEIGHT - BOTTOM }),
            svg('text', { x: x(i), y: 14, 'text-anchor': 'middle' }, a.label + (scales[i].log ? ' (log)' : '')),
            ...scales[i].ticks.slice(0, 12).map((v) => svg('text', { x: x(i) + 6, y: y(i, v) + 4, class: 'tick' }, short(v))));
    });
    return h('section.panel', { 'aria-label': 'Parallel coordinates' }, h('.panel-head', {}, h('h2', {}, 'Values and results'),
        h('span.note', {}, 'strong lines have the lowest loss')), h('.wide', { tabindex: '0', role: 'region', 'aria-label': 'Picture' }, picture));
}
