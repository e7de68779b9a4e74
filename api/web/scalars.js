/* scalars - a chart for each number that a job measures by step and no other chart shows, in the order they came */
import { chart } from './chart.js';
import { h } from './ui.js';

const CHARTS_MAX = 40;
const COUNTED = ['step', 'v', 't', 'at', 'time', 'rank', 'ranks', 'generation', 'attempt']; /* what says where and when */

/* What the built-in engine measures, in people's words. */
const TITLES = { lr: 'Learning rate', grad_norm: 'Gradient norm', step_ms: 'Step time, ms', stall_ms: 'Wait for checkpoints, ms',
    tokens: 'Tokens so far', mfu: 'Share of the peak rate', bytes_tp: 'Bytes between tensor ranks', bytes_pp: 'Bytes between stages',
    bytes_dp: 'Bytes between replicas', activation_mib: 'Activations, MiB', recomputed: 'Share computed again', leaf_ms: 'Time on leaves, ms' };

/* What was 0 from the first step on is no chart yet. */
const tells = (v) => typeof v === 'number' && v !== 0;
const format = (v) => String(Number(v.toPrecision(4)));

/* elsewhere: names that other charts of the page have. */
export function scalars(signal, elsewhere = []) {
    const charts = new Map(), left = new Set(), without = new Set([...COUNTED, ...elsewhere]);
    const note = h('p.note.pad', { hidden: true });
    const el = h('.charts.even', { hidden: true });

    function chartOf(name) {
        if (!charts.has(name) && charts.size >= CHARTS_MAX) {
            left.add(name);
            note.hidden = false;
            note.textContent = `Of ${charts.size + left.size} metrics the first ${CHARTS_MAX} are shown; \`muster metrics\` prints all.`;
            return null;
        }
        if (!charts.has(name)) {
            charts.set(name, chart(TITLES[name] ?? name, [{ key: name, label: name, format, color: '--accent' }], signal));
            el.append(charts.get(name).el);
            el.hidden = false;
        }
        return charts.get(name);
    }

    return { el, note,
        add(m) {
            for (const [name, value] of Object.entries(m))
                if ((charts.has(name) ? typeof value === 'number' : tells(value)) && !without.has(name))
                    chartOf(name)?.add(m.step, m);
        },
        setColumns(columns) {
            for (const [name, values] of Object.entries(columns))
                if (!without.has(name) && values.some(tells))
                    chartOf(name)?.setColumns({ step: [...(columns.step ?? [])],
                        [name]: values.map((v) => (typeof v === 'number' ? v : null)) });
        } };
}
