/* controls - change a job that has not ended: how many devices it has, before whom it goes */
import { patch } from './api.js';
import { h, sentence, text } from './ui.js';

/* Resolves to words for people; null: nothing was changed. */
export function controls(job) {
    return new Promise((resolve) => {
        const number = (key, label, value, least, most) => ({ key, value,
            input: h('input', { type: 'number', name: key, min: least, max: most, value, required: true }), label });
        const fields = [number('priority', 'Priority, 0 to 100', job.priority, 0, 100), ...job.array
            ? [number('max_running', 'Tasks at once', job.array.max_running, 1, 100000)]
            : [number('min', 'Fewest devices', job.devices.min, 1, 1024), number('max', 'Most devices', job.devices.max, 1, 1024)]];
        const fault = h('p.warn', { role: 'alert' });
        const value = (key) => Number(fields.find((f) => f.key === key).input.value);
        let said = null;
        const form = h('form', { onsubmit: async (e) => {
            e.preventDefault();
            try {
                await patch(`/v1/jobs/${job.id}`, { priority: value('priority'), ...job.array ? { array: { max_running: value('max_running') } }
                    : { devices: { min: value('min'), max: value('max') } } });
                said = 'Changed.';
                dialog.close();
            } catch (problem) {
                text(fault, problem.errors.map((f) => `${f.pointer.slice(1).replaceAll('/', '.')} ${f.message}.`).join(' ') || sentence(problem.message));
            }
        } }, h('h2', { id: 'change-title' }, `Change ${job.name}`),
        fields.map((f) => h('label.field', {}, h('span.label', {}, f.label), f.input)),
        h('p.note', {}, job.array ? '' : 'A run that has other devices than it may have then moves.'), fault,
        h('.buttons', {}, h('button', { type: 'button', onclick: () => dialog.close() }, 'Back'), h('button.primary', { type: 'submit' }, 'Change')));
        const dialog = h('dialog', { 'aria-labelledby': 'change-title' }, form);
        dialog.addEventListener('close', () => {
            dialog.remove();
            resolve(said);
        });
        document.body.append(dialog);
        dialog.showModal();
    });
}
