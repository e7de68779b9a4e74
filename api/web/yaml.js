/* yaml - where in the text of a spec its fields are, and a spec as text; the server alone reads the text */

const indent = (line) => line.length - line.trimStart().length;
const KEY = /^(\s*(?:- )*)(?:"([^"]*)"|'([^']*)'|([^\s:#'"{[][^:#]*?))\s*:(?:\s|$)/;

/* Of a line of block style: its key, and the column of that; null: it has none. */
function keyOf(line) {
    const m = KEY.exec(line);
    return m && { key: m[2] ?? m[3] ?? m[4], at: m[1].length };
}

/* The keys above and at a line: ["train", "model"]; what is typed there last is not among them. */
export function pathAt(lines, n) {
    const path = [];
    let at = lines[n].trim() ? keyOf(lines[n])?.at ?? indent(lines[n]) : lines[n].length;
    for (let i = n - 1; i >= 0 && at > 0; i--) {
        const k = keyOf(lines[i]);
        if (k && k.at < at) {
            path.unshift(k.key);
            at = k.at;
        }
    }
    return path;
}

/* The line, from 0, of a JSON pointer; of a field in braces, or one that is not there, that of what it would be in. */
export function lineOf(lines, pointer) {
    let from = 0, to = lines.length, found = 0, deep = -1;
    for (const part of pointer.split('/').slice(1).map((p) => p.replaceAll('~1', '/').replaceAll('~0', '~'))) {
        let hit = -1, items = -1, column = -1;
        for (let i = from; i < to && hit < 0; i++) {
            const line = lines[i], k = keyOf(line), dash = /^\s*- /.test(line);
            if (!line.trim() || line.trimStart().startsWith('#'))
                continue;
            if (column < 0)
                column = k && (!dash || Number.isNaN(Number(part))) ? k.at : indent(line);
            if (!Number.isNaN(Number(part)) && dash && indent(line) === column && ++items === Number(part))
                hit = i;
            else if (k && k.key === part && k.at >= column && k.at === column && (k.at > deep || i === from))
                hit = i;
        }
        if (hit < 0)
            break;
        found = hit;
        deep = keyOf(lines[hit])?.at ?? indent(lines[hit]);
        from = hit + (/^\s*- /.test(lines[hit]) && !Number.isNaN(Number(part)) ? 0 : 1);
        for (to = hit + 1; to < lines.length && (!lines[to].trim() || indent(lines[to]) > indent(lines[hit])
            || (indent(lines[to]) === indent(lines[hit]) && lines[to].trimStart().startsWith('- ') && !lines[hit].trimStart().startsWith('- '))); to++);
    }
    return found;
}

const PLAIN = /^[A-Za-z_./][\w./@+-]*$/, WORDS = /^(?:true|false|null|yes|no|on|off|~)$/i;
const scalar = (v) => (typeof v === 'string' ? (PLAIN.test(v) && !WORDS.test(v) ? v : JSON.stringify(v)) : JSON.stringify(v));
const isMap = (v) => v && typeof v === 'object' && !Array.isArray(v);

/* Objects in blocks; lists, and objects of few plain values below the first level, in one line. */
export function emit(value, depth = 0) {
    const pad = '  '.repeat(depth);
    return Object.entries(value).map(([k, v]) => {
        const key = `${pad}${scalar(k)}:`, flow = (x) => (Array.isArray(x) ? `[${x.map(flow).join(', ')}]` : isMap(x) ? JSON.stringify(x) : scalar(x));
        if (!isMap(v))
            return typeof v === 'string' && /\n/.test(v) && !/^\s|[^\S\n]\n|\r|\n\n$/.test(v) && v.endsWith('\n')
                ? `${key} |\n${v.trimEnd().split('\n').map((l) => (l ? `${pad}  ${l}` : '')).join('\n')}\n` : `${key} ${flow(v)}\n`;
        const all = Object.entries(v), one = `{${all.map(([a, b]) => `${scalar(a)}: ${flow(b)}`).join(', ')}}`;
        return all.length === 0 || (all.every(([, b]) => typeof b !== 'object' || Array.isArray(b)) && one.length < 72) ? `${key} ${one}\n`
            : `${key}\n${emit(v, depth + 1)}`;
    }).join('');
}

/* The object of a schema that may be other things, too. */
export const objectOf = (schema) => (schema?.properties ? schema : schema?.anyOf?.map(objectOf).find(Boolean));

/* A spec without what its schema says it is anyhow. */
export function brief(value, schema) {
    const known = objectOf(schema)?.properties ?? {};
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, isMap(v) && objectOf(known[k]) ? brief(v, known[k]) : v])
        .filter(([k, v]) => !(known[k] && 'default' in known[k] && JSON.stringify(known[k].default) === JSON.stringify(v)))
        .filter(([k, v]) => v !== null && !(isMap(v) && !Object.keys(v).length && objectOf(known[k]))));
}

/* What may be written at a place: [{word, note}], keys of the object there, or values of the key before a colon. */
export function words(schema, lines, n, column) {
    const line = lines[n].slice(0, column), value = KEY.exec(line), typed = /[\w./-]*$/.exec(line)[0];
    let at = schema;
    for (const key of [...pathAt(lines, n), ...value ? [keyOf(line).key] : []])
        at = objectOf(at)?.properties?.[key];
    const enums = (s) => [...s?.enum ?? [], ...s && 'const' in s ? [s.const] : [], ...s?.type === 'boolean' ? [true, false] : [],
        ...(s?.anyOf ?? []).flatMap(enums)];
    const all = value ? enums(at).map((v) => ({ word: String(v), note: v === at.default ? 'the default' : '' }))
        : Object.entries(objectOf(at)?.properties ?? {}).map(([k, s]) => ({ word: k, note: s.description ?? '', end: ': ' }));
    return { typed, all: all.filter((w) => w.word.startsWith(typed) && w.word !== typed) };
}
