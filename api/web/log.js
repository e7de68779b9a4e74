/* log - the end of a job's output, one rank or all, growing while the job runs */
import { follow, get } from './api.js';
import { h, isEnded, sentence, text } from './ui.js';

const LINES_MAX = 5000, TAIL = 500;
const LAST_TRIES = 60, LAST_PAUSE_MS = 500;
const READS_MAX = 16; /* for one gap: about what the panel can show */
const ESCAPES = /\u001b\[[0-9;?]*[A-Za-z]/g; /* colours of terminals */

const STAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/; /* as our own programs begin their lines */

/* What several ranks have written so far, line by line in the order of the times at their beginning: else the newest of
 * rank 0 would stand above the oldest of rank 1. Lines without a time stay behind those before them. */
function byTime(pieces) {
    const lines = pieces.flatMap((piece) => {
        let at = '';
        return piece.text.split(/(?<=\n)/).map((line) => {
            at = STAMP.exec(line)?.[0] ?? at;
            return { rank: piece.rank, text: line, at };
        });
    });
    return lines.sort((a, b) => (a.at < b.at ? -1 : Number(a.at > b.at)));
}

export function logPanel(id, signal) {
    const select = h('select', { 'aria-label': 'Rank' }, h('option', { value: '' }, 'All ranks'));
    const tailing = h('input', { type: 'checkbox', id: 'follow-log', checked: true });
    const box = h('pre.log', { tabindex: '0', role: 'log', 'aria-label': 'Log', 'aria-live': 'off' });
    const note = h('p.note.pad');
    const el = h('section.panel.log-panel', { 'aria-label': 'Log' }, h('.panel-head', {}, h('h2', {}, 'Log'),
        h('label.check', { for: 'follow-log' }, tailing, 'Follow'), select), note, box);
    let round = null, ranks = 0, many = false, job = null;
    const partial = new Map(); /* rank → element of a line that has not ended */

    const bottom = () => { if (tailing.checked) box.scrollTop = box.scrollHeight; };

    /* Ranks to choose from. */
    function offer(n) {
        if (n === ranks)
            return;
        ranks = n;
        const chosen = select.value;
        select.replaceChildren(h('option', { value: '' }, 'All ranks'),
            ...Array.from({ length: n }, (_, r) => h('option', { value: r }, `Rank ${r}`)));
        select.value = chosen;
    }

    function clear() {
        box.replaceChildren();
        partial.clear();
        text(note, '');
    }

    function put(piece) {
        const lines = piece.text.replace(ESCAPES, '').replace(/\r\n/g, '\n').split('\n');
        lines.forEach((line, i) => {
            const last = i === lines.length - 1;
            if (last && line === '')
                return;
            let row = partial.get(piece.rank);
            const words = line.slice(line.lastIndexOf('\r') + 1);
            if (row) {
                row.lastChild.textContent = line.includes('\r') ? words : row.lastChild.textContent + words;
            } else {
                row = h('span.line', {}, many ? h('span.rank', {}, `${piece.rank} `) : null, h('span', {}, words));
                box.append(row);
            }
            if (last)
                partial.set(piece.rank, row);
            else
                partial.delete(piece.rank);
        });
        while (box.children.length > LINES_MAX)
            box.firstChild.remove();
        text(note, '');
        bottom();
    }

    /* Read the tail, then follow. Pieces of the stream that do not begin where the log shown ends (it grew between the
     * two, or while the stream was broken) are read from there instead. */
    async function load() {
        round?.abort();
        round = new AbortController();
        const mine = round.signal, rank = select.value ? `&rank=${select.value}` : '';
        const reached = new Map();
        let turn = Promise.resolve();
        clear();
        many = !rank && ranks > 1;
        const add = (p) => {
            if (mine.aborted)
                return;
            reached.set(`${p.generation}:${p.rank}`, p.next_offset);
            if (p.text)
                put(p);
        };
        const fresh = async (p) => {
            let at = reached.get(`${p.generation}:${p.rank}`) ?? 0;
            for (let reads = 0; p.offset !== at && p.next_offset > at && reads < READS_MAX; reads++) {
                const [piece] = (await get(
                    `/v1/jobs/${id}/logs?rank=${p.rank}&generation=${p.generation}&offset=${at}`, mine)).logs;
                if (!piece || piece.next_offset <= at)
                    break;
                add(piece);
                at = piece.next_offset;
            }
            if (p.next_offset > at)
                add(p);
        };
        try {
            const past = await get(`/v1/jobs/${id}/logs?tail=${TAIL}${rank}`, mine);
            offer(Math.max(ranks, ...past.logs.map((p) => p.rank + 1))); /* a job that has ended has no assignment */
            many = !rank && ranks > 1;
            past.logs.forEach((p) => reached.set(`${p.generation}:${p.rank}`, p.next_offset));
            (many ? byTime(past.logs) : past.logs).forEach((p) => p.text && put(p));
            if (!box.children.length)
                text(note, past.removed ? 'Its logs were removed: those of all jobs took more than the server keeps.'
                    : job && isEnded(job) ? 'It wrote nothing.' : 'Nothing written yet.');
            if (job && isEnded(job))
                return;
            const next = (p) => { turn = turn.then(() => mine.aborted || fresh(p)).catch(failed); };
            const readOn = async () => {
                const now = await get(`/v1/jobs/${id}/logs?tail=${TAIL}${rank}`, mine);
                now.logs.forEach(next);
                return now.complete;
            };
            await follow(`/v1/jobs/${id}/logs?follow=1${rank}`, {
                signal: mine, on: (type, p) => type === 'log' && next(p),
                state: (connected) => connected && readOn().catch(failed) }); /* what came before the stream began */
            for (let tries = 0; !mine.aborted && tries < LAST_TRIES; tries++) { /* the last lines may come after the end */
                if (await readOn())
                    break;
                await new Promise((done) => { setTimeout(done, LAST_PAUSE_MS); });
            }
        } catch (e) {
            failed(e);
        }
    }

    function failed(e) {
        if (e.name !== 'AbortError')
            text(note, sentence(e.message));
    }

    select.addEventListener('change', load);
    tailing.addEventListener('change', bottom);
    box.addEventListener('scroll', () => {
        tailing.checked = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    });
    signal.addEventListener('abort', () => round?.abort(), { once: true });

    return { el, update(now) {
        const first = !job, had = job?.generation, n = Math.max(now.assignment?.length ?? 0, ranks);
        job = now;
        offer(n);
        if (first || (had !== now.generation && !isEnded(now)))
            load();
    } };
}
