/* diagnosis - who holds up a run: the verdict, its ranks as a grid, and the same as a table */
import { get } from './api.js';
import * as ui from './ui.js';
const { h, text } = ui;

const ROWS_SHOWN = 64, LATE_MS = 4000; /* within which its nodes have told */
const WORDS = { root: 'at fault', waits: 'waiting', stopped: 'stopped', ended: 'ended', works: 'working', unknown: 'not told' };

function does(told, roots) {
    if (roots.includes(told.rank))
        return 'root';
    if (told.state === 'exited')
        return 'ended';
    if (told.stopped)
        return 'stopped';
    return told.op ? 'waits' : told.phase ? 'works' : 'unknown';
}

function waitsIn(told) {
    if (!told.op)
        return '–';
    const group = (told.groups ?? []).find((g) => g.key === told.op_key)?.name ?? '?';
    return told.op_peer >= 0 ? `${told.op}, rank ${told.op_peer} in ${group}` : `${told.op.replaceAll('_', '-')} ${told.op_call} of ${group}`;
}

/* Where a rank is: tp varies fastest, then cp, dp, pp. Ranks without such a layout stand in one row. */
function shape(incident) {
    const { tp = 1, cp = 1, dp = 1, pp = 1 } = incident.layout ?? {}, n = incident.ranks.length;
    return tp * cp * dp * pp === n ? { tp, cp, dp, pp, plain: n > 1 && dp === n } : { tp: 1, cp: 1, dp: n, pp: 1, plain: true };
}

function place(s, rank) {
    if (s.plain)
        return '';
    const parts = { pp: Math.floor(rank / (s.tp * s.cp * s.dp)), dp: Math.floor(rank / (s.tp * s.cp)) % s.dp,
        cp: Math.floor(rank / s.tp) % s.cp, tp: rank % s.tp };
    return Object.keys(parts).filter((k) => s[k] > 1).map((k) => `${k} ${parts[k]}`).join(' · ');
}

/* Rows are stages, columns replicas; the ranks of a box share its layers' tensors and sequences. */
function grid(incident, s) {
    const roots = incident.verdict.roots ?? [], boxes = [];
    for (let p = 0; p < s.pp; p++) {
        if (s.pp > 1)
            boxes.push(h('span.g-label', {}, `pp ${p}`));
        for (let d = 0; d < s.dp; d++) {
            const first = s.tp * s.cp * (d + s.dp * p);
            boxes.push(h('.g-box', { title: s.plain ? '' : place(s, first).replace(/ · tp.*| · cp.*/, '') },
                ...Array.from({ length: s.tp * s.cp }, (_, i) => {
                    const { told, node } = incident.ranks[first + i], state = does(told, roots);
                    return h(`span.g-rank.d-${state}`, { title: `rank ${told.rank} on ${node}: ${WORDS[state]}` }, told.rank);
                })));
        }
    }
    return h('.g-scroll', { 'aria-hidden': 'true' }, h('.g-grid', { style: {
        'grid-template-columns': `${s.pp > 1 ? 'auto ' : ''}repeat(${s.plain ? Math.min(s.dp, 16) : s.dp}, max-content)` } }, boxes));
}

function legend(incident) {
    const roots = incident.verdict.roots ?? [], counts = {};
    for (const { told } of incident.ranks)
        counts[does(told, roots)] = (counts[does(told, roots)] ?? 0) + 1;
    return h('p.g-legend.note', {}, Object.keys(WORDS).filter((k) => counts[k]).map((k) =>
        h('span', {}, h(`i.g-rank.d-${k}`, { 'aria-hidden': 'true' }), `${counts[k]} ${WORDS[k]}`)));
}

function table(incident, s) {
    const roots = incident.verdict.roots ?? [];
    const ranks = [...incident.ranks].sort((a, b) => roots.includes(b.told.rank) - roots.includes(a.told.rank) || a.told.rank - b.told.rank);
    const rows = ranks.slice(0, ROWS_SHOWN).map(({ told, node }) => {
        const state = does(told, roots);
        return h(`tr${state === 'root' ? '.g-root' : ''}`, {}, h('th', { scope: 'row' }, told.rank), h('td', {}, node),
            ...(s.plain ? [] : [h('td', {}, place(s, told.rank))]), h('td', {}, WORDS[state]), h('td.num', {}, ui.count(told.step)),
            h('td', {}, told.phase ?? '–'), h('td.num', {}, told.idle_us ? `${(told.idle_us / 1e6).toFixed(1)} s` : '–'),
            h('td', {}, waitsIn(told)));
    });
    return ui.scroll('What ranks do', h('table.small', {}, h('caption.sr', {}, 'Ranks, those at fault first'), h('thead', {}, h('tr', {},
        ...['Rank', 'Node', ...(s.plain ? [] : ['Place']), 'State', 'Step', 'Phase', 'For', 'Waits in']
            .map((c) => h(['Step', 'For'].includes(c) ? 'th.num' : 'th', { scope: 'col' }, c)))), h('tbody', {}, rows)),
    ...(ranks.length > ROWS_SHOWN ? [h('p.note.pad', {}, `and ${ranks.length - ROWS_SHOWN} more; muster diagnose shows all`)] : []));
}

/* What machines told of those at fault: their processes and last words. */
function lastWords(incident) {
    const roots = incident.verdict.roots ?? [];
    return (incident.parts ?? []).flatMap((part) => (part.ranks ?? []).filter((r) => roots.includes(r.told?.rank)).map((r) => h('details', {},
        h('summary', {}, `What was seen of rank ${r.told.rank} on ${part.node}`),
        h('pre.tail', { tabindex: '0' }, [...(r.processes ?? []).map((p) => `process ${p.pid} ${p.name}: ${p.state}`
            + `${p.wait ? `, in ${p.wait}` : ''}${p.stack ? `\n${p.stack}` : ''}${p.python ? `\n${p.python}` : ''}`), r.log ?? ''].join('\n')))));
}

export function diagnosisPanel(id, signal) {
    const title = h('h2', {}, 'Diagnosis'), pill = h('span.pill'), when = h('span.note'), body = h('.pad.g-body');
    const look = h('button', { type: 'button', 'data-action': 'look', onclick: () => show('diagnosis') }, 'What does each rank do?');
    const el = h('section.panel.g-panel', { 'aria-label': 'Diagnosis', hidden: true }, h('.panel-head', {}, title, pill, when, look), body);
    let newest = null, state = '', asked = 0, parts = 0;

    async function show(path) {
        const mine = ++asked;
        look.disabled = true;
        try {
            const incident = await get(`/v1/jobs/${id}/${path}`, signal);
            if (mine !== asked)
                return;
            parts = (incident.parts ?? []).length;
            const s = shape(incident), verdict = incident.verdict ?? {}, bad = (verdict.roots ?? []).length > 0;
            incident.verdict = verdict;
            pill.hidden = false;
            text(pill, (verdict.class || 'unknown').replaceAll('-', ' ')).className = `pill ${bad ? 'is-failed' : 'is-running'}`;
            text(when, `${incident.kind === 'look' ? 'looked at' : `attempt ${incident.generation},`} ${ui.when(new Date(incident.at_ms).toISOString())}`);
            body.replaceChildren(h('p.g-verdict', {}, ui.sentence(verdict.text || 'no rank holds up the others for longer than it may')),
                ...(incident.ranks?.length ? [grid(incident, s), legend(incident), table(incident, s)] : []), ...lastWords(incident));
        } catch (e) {
            if (e.name !== 'AbortError' && mine === asked)
                body.replaceChildren(h('p.note', {}, ui.sentence(e.message)));
        }
        look.disabled = false;
    }

    /* A run has begun or ended: is there a new incident? */
    async function refresh() {
        try {
            const { incidents } = await get(`/v1/jobs/${id}/incidents`, signal);
            if (incidents[0] && (incidents[0].id !== newest || parts === 0)) { /* what its nodes tell comes later */
                newest = incidents[0].id;
                el.hidden = false;
                await show(`incidents/${newest}`);
            }
        } catch (e) {
            if (e.name !== 'AbortError')
                body.replaceChildren(h('p.note', {}, ui.sentence(e.message)));
        }
    }

    pill.hidden = true;
    return { el, refresh, soon() {
        refresh();
        setTimeout(refresh, LATE_MS);
    }, update(job) {
        look.hidden = !['starting', 'running'].includes(job.state);
        el.hidden = look.hidden && newest === null;
        if (job.state !== state && !look.hidden && newest === null && !body.children.length)
            body.replaceChildren(h('p.note', {}, 'No rank of it has been found to hold up the others.'));
        state = job.state;
    } };
}
