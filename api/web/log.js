/* log - the end of a job's output, one rank or all, of one attempt; it grows while the job runs, is searched and taken home */
import { follow, get } from './api.js';
import { save } from './chart.js';
import { h, isEnded, sentence, text } from './ui.js';

const LINES_MAX = 5000, TAIL = 500, FOUND_MAX = 1000; /* of each rank */
const FOUND_BYTES = 1 << 20, TYPING_MS = 300;
const LAST_TRIES = 60, LAST_PAUSE_MS = 500;
const READS_MAX = 16; /* for one gap: about what the panel can show */
const FILE_MAX = 256 << 20; /* bytes of a file that is taken home */
const ESCAPES = /\u001b\[[0-9;?]*[A-Za-ln-z]/g; /* of terminals, but for colours */
const COLOURS = { 31: 'bad', 32: 'accent', 33: 'warm', 34: 'blue', 35: 'violet', 36: 'accent' };

/* Text with the colours of terminals, as elements. */
export function paint(words) {
    let colour = '', bold = false;
    return words.split(/\u001b\[([0-9;]*)m/).map((part, i) => {
        if (i % 2 === 0)
            return !part ? null : colour || bold ? h('span', { class: [colour && `ansi-${colour}`, bold && 'ansi-bold'].filter(Boolean).join(' ') }, part) : part;
        for (const code of part.split(';').map(Number)) {
            colour = code === 0 || code === 39 ? '' : COLOURS[code > 89 ? code - 60 : code] ?? colour;
            bold = code === 1 || (bold && code !== 0 && code !== 22);
        }
        return null;
    }).filter((part) => part !== null);
}

/* Words as a pattern of the server's, of either case. */
const asPattern = (words) => encodeURIComponent(`(?i)${words.replace(/[^A-Za-z0-9 _\u0080-\uffff]/g, '\\$&')}`);

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
    const attempt = h('select', { 'aria-label': 'Attempt', hidden: true }, h('option', { value: '' }, 'Newest attempt'));
    const find = h('input', { type: 'search', placeholder: 'Find in the log', 'aria-label': 'Find in the log' });
    const home = h('button', { type: 'button', 'data-action': 'download-log', onclick: download }, 'Download');
    const note = h('p.note.pad', { 'aria-live': 'polite' });
    const el = h('section.panel.log-panel', { 'aria-label': 'Log' }, h('.panel-head', {}, h('h2', {}, 'Log'),
        h('label.check', { for: 'follow-log' }, tailing, 'Follow'), find, attempt, select, home), note, box);
    let round = null, ranks = 0, many = false, job = null, typing = 0, looked = '';
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

    /* Attempts to choose from. */
    function offerAttempts(all = []) {
        if (all.length < 2 || attempt.children.length > all.length)
            return;
        const chosen = attempt.value;
        attempt.replaceChildren(h('option', { value: '' }, 'Newest attempt'),
            ...all.map((n) => h('option', { value: n }, `Attempt ${n}`)));
        attempt.value = chosen;
        attempt.hidden = false;
    }

    /* Show a line that has come only if it has the words; the server chose those before. */
    function sift(row) {
        const words = looked.toLowerCase();
        row.hidden = !!words && !row.lastChild.textContent.toLowerCase().includes(words);
    }

    /* All that is kept of what was chosen, rank by rank. */
    async function download() {
        const parts = [];
        let bytes = 0;
        try {
            for (let rank = select.value ? Number(select.value) : 0; rank < (select.value ? Number(select.value) + 1 : Math.max(1, ranks)); rank++) {
                for (let at = 0, more = true; more && bytes < FILE_MAX;) {
                    const [piece] = (await get(`/v1/jobs/${id}/logs?rank=${rank}&offset=${at}${generation()}`, signal)).logs;
                    more = !!piece && piece.next_offset > at;
                    if (more) {
                        parts.push(piece.text);
                        bytes += piece.next_offset - at;
                        at = piece.next_offset;
                    }
                }
            }
            save(new Blob(parts, { type: 'text/plain' }), `${id}.log`);
        } catch (e) {
            failed(e);
        }
    }

    const generation = () => (attempt.value ? `&generation=${attempt.value}` : '');

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
            if (!row) {
                row = h('span.line', {}, many ? h('span.rank', {}, `${piece.rank} `) : null, h('span'));
                row.raw = '';
                box.append(row);
            }
            row.raw = line.includes('\r') ? words : row.raw + words;
            row.lastChild.replaceChildren(...paint(row.raw));
            sift(row);
            if (last)
                partial.set(piece.rank, row);
            else
                partial.delete(piece.rank);
        });
        while (box.children.length > LINES_MAX)
            box.firstChild.remove();
        if (!looked)
            text(note, '');
        bottom();
    }

    /* Read the tail, then follow. Pieces of the stream that do not begin where the log shown ends (it grew between the
     * two, or while the stream was broken) are read from there instead. */
    async function load() {
        round?.abort();
        round = new AbortController();
        const mine = round.signal, rank = (select.value ? `&rank=${select.value}` : '') + generation();
        looked = find.value.trim();
        const tail = looked ? FOUND_MAX : TAIL, chosen = !!attempt.value; /* of an earlier attempt nothing comes */
        const grep = looked ? `&grep=${asPattern(looked)}` : '';
        const reached = new Map();
        let turn = Promise.resolve();
        clear();
        many = !select.value && ranks > 1;
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
            const past = await get(`/v1/jobs/${id}/logs?tail=${tail}${rank}${grep}`, mine);
            past.logs.forEach((p) => reached.set(`${p.generation}:${p.rank}`, p.next_offset));
            if (looked)
                for (const p of past.logs)
                    await searchBack(p, tail, grep, mine);
            offer(Math.max(ranks, ...past.logs.map((p) => p.rank + 1))); /* a job that has ended has no assignment */
            offerAttempts(past.attempts);
            many = !select.value && ranks > 1;
            (many ? byTime(past.logs) : past.logs).forEach((p) => p.text && put(p));
            if (looked)
                text(note, `${box.children.length} ${box.children.length === 1 ? 'line' : 'lines'} found${
                    past.logs.some((p) => p.offset > 0) ? ', the last that there are' : ''}.`);
            else if (!box.children.length)
                text(note, past.removed ? 'Its logs were removed: those of all jobs took more than the server keeps.'
                    : job && isEnded(job) ? 'It wrote nothing.' : 'Nothing written yet.');
            if (chosen || (job && isEnded(job)))
                return;
            const next = (p) => { turn = turn.then(() => mine.aborted || fresh(p)).catch(failed); };
            const readOn = async () => {
                const now = await get(`/v1/jobs/${id}/logs?tail=${tail}${rank}`, mine);
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

    /* Put before what was found of a log what is found further back, until there is enough. */
    async function searchBack(p, wanted, grep, mine) {
        while (p.offset > 0 && p.offset < p.next_offset && p.text.split('\n').length <= wanted && p.text.length < FOUND_BYTES) {
            const [more] = (await get(`/v1/jobs/${id}/logs?rank=${p.rank}&generation=${p.generation}&tail=${wanted}&before=${p.offset}${grep}`, mine)).logs;
            if (!more || more.offset >= p.offset)
                break;
            p.text = more.text + p.text;
            p.offset = more.offset;
        }
    }

    function failed(e) {
        if (e.name !== 'AbortError')
            text(note, sentence(e.message));
    }

    select.addEventListener('change', load);
    attempt.addEventListener('change', load);
    find.addEventListener('input', () => {
        clearTimeout(typing);
        typing = setTimeout(() => find.value.trim() !== looked && load(), TYPING_MS);
    });
    tailing.addEventListener('change', bottom);
    box.addEventListener('scroll', () => {
        tailing.checked = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    });
    signal.addEventListener('abort', () => { clearTimeout(typing); round?.abort(); }, { once: true });

    return { el, update(now) {
        const first = !job, had = job?.generation, n = Math.max(now.assignment?.length ?? 0, ranks);
        job = now;
        offer(n);
        if (first || (had !== now.generation && !isEnded(now)))
            load();
    } };
}
