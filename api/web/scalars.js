/* scalars - which charts there are for what jobs measure: the known ones in people's words, any other by its name */
import * as ui from './ui.js';

const CHARTS_MAX = 40;
const COUNTED = ['v', 't', 'at', 'time', 'rank', 'ranks', 'generation', 'attempt', 'imbalance']; /* what says where and when */

const TITLES = { lr: 'Learning rate', grad_norm: 'Gradient norm',
    tokens: 'Tokens so far', mfu: 'Share of the peak rate', activation_mib: 'Activations, MiB',
    recomputed: 'Share computed again', documents: 'Documents', micro_batches: 'Micro-batches', targets: 'Predicted tokens' };

export const plain = (v) => String(Number(v.toPrecision(4)));
const percent = (v) => `${Number((100 * v).toPrecision(3))} %`;
const line = (key, label, format = plain, color = '--accent', more = {}) => ({ key, label, format, color, ...more });

/* The charts of the built-in engine that stand above the others; of documents: how they were laid out over the ranks. */
const KNOWN = [
    { title: 'Loss', lines: [line('loss', 'training', ui.loss, '--accent', { tick: plain }),
        line('eval', 'evaluation', ui.loss, '--warm', { points: true })] },
    { title: 'Tokens per second', lines: [line('tokens_per_s', 'tokens/s', ui.count)] },
    { title: 'Step time', lines: [line('step_ms', 'a step', ui.ms), line('stall_ms', 'of it waiting for checkpoints', ui.ms, '--warm')] },
    { title: 'Bytes a step, by group of ranks', lines: [line('bytes_tp', 'tensor', ui.bytes), line('bytes_pp', 'stages', ui.bytes, '--blue'),
        line('bytes_dp', 'replicas', ui.bytes, '--violet'), line('bytes_cp', 'shared sequences', ui.bytes, '--warm')] },
    { title: 'Tokens per rank', lines: [line('rank_tokens_max', 'most', ui.count), line('rank_tokens_min', 'least', ui.count, '--warm')] },
    { title: 'Idle share of a step', lines: [line('waiting_share', 'waiting for the busiest', percent),
        line('padding_share', 'padding', percent, '--warm')] },
    { title: 'Tokens in documents that ranks share', lines: [line('sharded_share', 'shared', percent)] },
];

/* What was 0 from the first step on is no chart yet. */
const tells = (c) => (c.most ?? c.mean).some((v) => v) || c.least?.some((v) => v);

/* Charts in order: {title, group, lines}. shown: the answers of all jobs; train: of the built-in engine; many: a line for
 * each job, so one number a chart. */
export function definitions(shown, train, many) {
    const names = new Set(shown.flatMap((a) => Object.entries(a.series).filter(([, c]) => tells(c)).map(([name]) => name)));
    const list = [];
    if (train) {
        for (const known of KNOWN.filter((k, i) => i < 2 || k.lines.some((l) => names.has(l.key)))) {
            if (many)
                list.push(...known.lines.map((l, i) => ({ title: i ? `${known.title}: ${l.label}` : known.title, group: '', lines: [l] })));
            else
                list.push({ ...known, group: '' });
            known.lines.forEach((l) => names.delete(l.key));
        }
    }
    const others = [...names].filter((name) => !COUNTED.includes(name)), prefix = (name) => name.split('/').slice(0, -1).join('/');
    const left = others.splice(CHARTS_MAX).length;
    list.push(...others.map((name) => ({ title: TITLES[name] ?? name, lines: [line(name, name)],
        group: prefix(name) || (train ? 'More metrics' : '') })));
    return { list, left };
}
