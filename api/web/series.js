/* series - what one job measured: read by range with the least and most of each bucket, and grown by live points */
import { get } from './api.js';

const BUCKETS = 500, GROWN_MAX = 1000; /* points that the stream may add before all is read again */

/* id: of the job; told(atOnce): after each change, false: points may come by the hundred. */
export function series(id, signal, told) {
    const path = `/v1/jobs/${encodeURIComponent(id)}/series`;
    let whole = null, part = null, early = null, asked = 0, grown = 0;
    const s = { id, evals: [], checkpoints: [], load, zoom, add,
        get shown() { return part ?? whole; },
        get whole() { return whole; } };

    /* What is not measured but follows from it. */
    function derive(answer) {
        const { imbalance } = answer.series;
        if (imbalance)
            answer.series.waiting_share = Object.fromEntries(Object.entries(imbalance)
                .map(([k, column]) => [k, column.map((v) => (v ? 1 - 1 / v : null))]));
        return answer;
    }

    const read = async (query) => derive(await get(`${path}?${query}`, signal));

    /* All of it; what the stream brings meanwhile comes behind. */
    async function load() {
        early = [];
        grown = 0;
        try {
            whole = await read(`buckets=${BUCKETS}`);
            early = early.filter((m) => m.step > whole.last);
        } finally {
            const late = early;
            early = null;
            late.forEach(add);
        }
        told(true);
    }

    /* Read a range of steps, null: show all. */
    async function zoom(range) {
        const mine = ++asked;
        if (!range) {
            part = null;
            return told(true);
        }
        const [from, to] = range.map((v) => Math.max(0, Math.round(v)));
        const found = await read(`buckets=${BUCKETS}&from=${from}&to=${to}`);
        if (mine === asked) {
            part = found;
            told(true);
        }
    }

    function append(to, m) {
        const keep = to.step.findLastIndex((x) => x < m.step) + 1; /* a step that comes again replaces what followed it */
        const cut = (column) => column.splice(keep);
        [to.step, to.n].forEach(cut);
        Object.values(to.series).forEach((c) => Object.values(c).forEach(cut));
        to.step.push(m.step);
        to.n.push(1);
        to.last = m.step;
        for (const [name, v] of Object.entries(m))
            if (typeof v === 'number' && name !== 'step' && !to.series[name]) {
                const none = () => Array(keep).fill(null);
                to.series[name] = to.most > 1 ? { mean: none(), least: none(), most: none() } : { mean: none() };
            }
        for (const [name, c] of Object.entries(to.series))
            for (const column of Object.values(c))
                column.push(typeof m[name] === 'number' ? m[name] : null);
    }

    /* A line that was just measured. */
    function add(m) {
        if (early)
            return void early.push(m);
        if (!whole || typeof m.step !== 'number')
            return;
        m.waiting_share = m.imbalance ? 1 - 1 / m.imbalance : undefined;
        append(whole, m);
        if (++grown > GROWN_MAX)
            load().catch(() => {});
        told(false);
    }
    return s;
}

/* Where each attempt but the first begins: with the number of its ranks where that has changed. */
export function attempts(s) {
    const { attempts: all = [], step = [], series: columns = {} } = s.whole ?? {}, ranks = columns.ranks?.mean;
    const around = (at) => [ranks?.[step.findLastIndex((x) => x < at)], ranks?.[step.findIndex((x) => x >= at)]].map(Math.round);
    return all.slice(1).map((a) => {
        const [before, after] = around(a.step), moved = before > 0 && after > 0 && before !== after;
        return { step: a.step, kind: moved ? 'rescale' : 'restart', label: moved ? `${before}→${after}` : `attempt ${a.attempt}`,
            words: moved ? `Attempt ${a.attempt} went on with ${after} ranks instead of ${before}.` : `Attempt ${a.attempt} began here.` };
    });
}
