/* Rows of jobs: which wait, which fit, and in which order. */
#include "native.h"
#include <stdint.h>

static const double EPS = 1e-9;

/* From this many rows on, sorting by the bytes of the keys is quicker than merging. */
enum { MANY = 400, BYTES = sizeof(double), VALUES = 256 };

/* Keys in ascending order, those that are no number last, equal ones as they came. */
static int
comes_before(double a, double b)
{
    return a < b || (b != b && a == a);
}

/* Sort `rows` by their keys with `scratch` of the same length: merges, so equal keys stay in order. */
static void
merge_rows(Py_ssize_t *rows, Py_ssize_t *scratch, Py_ssize_t length, const double *key)
{
    if (length <= 16) {
        for (Py_ssize_t i = 1; i < length; i++) {
            Py_ssize_t row = rows[i], j = i;
            for (; j > 0 && comes_before(key[row], key[rows[j - 1]]); j--)
                rows[j] = rows[j - 1];
            rows[j] = row;
        }
        return;
    }
    Py_ssize_t half = length / 2, i = 0, j = half, to = 0;
    merge_rows(rows, scratch, half, key);
    merge_rows(rows + half, scratch, length - half, key);
    if (!comes_before(key[rows[half]], key[rows[half - 1]]))
        return;
    memcpy(scratch, rows, half * sizeof *rows);
    while (i < half && j < length)
        rows[to++] = comes_before(key[rows[j]], key[scratch[i]]) ? rows[j++] : scratch[i++];
    memcpy(rows + to, scratch + i, (half - i) * sizeof *rows);
}

/* A row and its key as a whole number: the order of these numbers is that of the keys. */
typedef struct {
    uint64_t number;
    Py_ssize_t row;
} Ranked;

static uint64_t
rank_key(double key)
{
    const uint64_t sign = (uint64_t)1 << 63;
    uint64_t bits;
    if (key != key)
        return UINT64_MAX; /* after infinity */
    key += 0.0; /* of both zeros, the one without a sign */
    memcpy(&bits, &key, sizeof bits);
    return bits & sign ? ~bits : bits | sign;
}

/* Sort `rows` by their keys, byte by byte from the last, so equal keys stay in order; -1 without memory. */
static int
sort_by_bytes(Py_ssize_t *rows, Py_ssize_t length, const double *key)
{
    Py_ssize_t counts[BYTES][VALUES] = {{0}};
    Ranked *from = PyMem_Malloc(2 * length * sizeof *from), *memory = from;
    if (from == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < length; i++) {
        uint64_t number = rank_key(key[rows[i]]);
        from[i] = (Ranked){number, rows[i]};
        for (int byte = 0; byte < BYTES; byte++)
            counts[byte][number >> 8 * byte & 255]++;
    }
    Ranked *to = from + length;
    for (int byte = 0; byte < BYTES; byte++) {
        Py_ssize_t *next = counts[byte], before = 0;
        if (next[from[0].number >> 8 * byte & 255] == length)
            continue; /* this byte is the same in every key */
        for (int value = 0; value < VALUES; value++) {
            Py_ssize_t here = next[value];
            next[value] = before;
            before += here;
        }
        for (Py_ssize_t i = 0; i < length; i++)
            to[next[from[i].number >> 8 * byte & 255]++] = from[i];
        Ranked *sorted = to;
        to = from;
        from = sorted;
    }
    for (Py_ssize_t i = 0; i < length; i++)
        rows[i] = from[i].row;
    PyMem_Free(memory);
    return 0;
}

/* Sort `rows` by their keys with `scratch` of the same length; equal keys stay in order. */
static void
sort_rows(Py_ssize_t *rows, Py_ssize_t *scratch, Py_ssize_t length, const double *key)
{
    if (length < MANY || sort_by_bytes(rows, length, key) < 0)
        merge_rows(rows, scratch, length, key);
}

/* `weft.pieces.fit._fit_few`: a scan in order that skips what does not fit. */
static void
fit_in_order(const double *size, Py_ssize_t length, double room, char *chosen)
{
    double taken = 0.0, most = room + EPS;
    for (Py_ssize_t i = 0; i < length; i++) {
        double total = taken + size[i];
        chosen[i] = total <= most;
        if (chosen[i])
            taken = total;
        else if (size[i] <= most) { /* a pass ends here */
            room -= taken;
            taken = 0.0;
            most = room + EPS;
        }
    }
}

/* The rows of a list for which `wanted` is `value`. */
static PyObject *
list_rows(const Py_ssize_t *rows, const char *wanted, char value, Py_ssize_t length)
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < length; i++) {
        if (wanted[i] != value)
            continue;
        PyObject *row = PyLong_FromSsize_t(rows[i]);
        if (row == NULL || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

/* Rows of floats as long as each other, copied where they do not lie side by side. */
typedef struct {
    Row row;
    double *numbers;
    double *copied;
} Column;

static void
release_columns(Column *columns, int count)
{
    for (int i = 0; i < count; i++) {
        PyMem_Free(columns[i].copied);
        weft_release(&columns[i].row);
    }
}

static int
get_columns(PyObject *const *arrays, Column *columns, int count)
{
    for (int i = 0; i < count; i++) {
        Column *column = &columns[i];
        column->copied = NULL;
        if (weft_get_floats(arrays[i], &column->row, 0) < 0) {
            release_columns(columns, i);
            return -1;
        }
        Py_ssize_t length = column->row.length;
        column->numbers = column->row.buffer.buf;
        if (length > 1 && column->row.stride != sizeof(double)) {
            column->numbers = column->copied = PyMem_Malloc(length * sizeof(double));
            for (Py_ssize_t k = 0; column->copied != NULL && k < length; k++)
                column->copied[k] = AT(column->row, double, k);
            if (column->copied == NULL)
                PyErr_NoMemory();
        }
        if (column->numbers != NULL && length == columns[0].row.length)
            continue;
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "columns of different lengths");
        release_columns(columns, i + 1);
        return -1;
    }
    return 0;
}

/* `weft.pieces.fit.list_waiting(held, need, key, room)`. */
static PyObject *
list_waiting(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "list_waiting takes held, need, key and room");
        return NULL;
    }
    double room = PyFloat_AsDouble(args[3]);
    if (room == -1.0 && PyErr_Occurred())
        return NULL;
    int by_key = args[2] != Py_None;
    Column columns[3];
    if (get_columns(args, columns, by_key ? 3 : 2) < 0)
        return NULL;
    const double *held = columns[0].numbers, *need = columns[1].numbers;
    Py_ssize_t length = columns[0].row.length, waiting = 0;
    Py_ssize_t *rows = PyMem_Malloc((2 * length + 1) * sizeof *rows);
    double *sizes = PyMem_Malloc((length + 1) * sizeof *sizes);
    PyObject *list = NULL;
    if (rows == NULL || sizes == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t row = 0; row < length; row++)
        if (held[row] == 0.0) {
            sizes[waiting] = need[row];
            rows[waiting++] = row;
        }
    if (weft_sum(sizes, waiting) > room) {
        list = Py_NewRef(Py_None);
        goto done;
    }
    if (by_key)
        sort_rows(rows, rows + length, waiting, columns[2].numbers);
    list = PyList_New(waiting);
    for (Py_ssize_t i = 0; list != NULL && i < waiting; i++) {
        PyObject *row = PyLong_FromSsize_t(rows[i]);
        if (row == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, row);
    }
done:
    PyMem_Free(rows);
    PyMem_Free(sizes);
    release_columns(columns, by_key ? 3 : 2);
    return list;
}

/* `weft.pieces.fit.choose_rows(key, need, held, room)`. */
static PyObject *
choose_rows(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "choose_rows takes key, need, held and room");
        return NULL;
    }
    double room = PyFloat_AsDouble(args[3]);
    Column columns[3];
    if ((room == -1.0 && PyErr_Occurred()) || get_columns(args, columns, 3) < 0)
        return NULL;
    const double *need = columns[1].numbers, *held = columns[2].numbers;
    Py_ssize_t length = columns[0].row.length;
    Py_ssize_t *rows = PyMem_Malloc((2 * length + 1) * sizeof *rows);
    double *sizes = PyMem_Malloc((length + 1) * sizeof *sizes);
    char *chosen = PyMem_Malloc(2 * length + 1), *changes = chosen + length;
    PyObject *stopped = NULL, *started = NULL, *first = NULL, *result = NULL;
    if (rows == NULL || sizes == NULL || chosen == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t row = 0; row < length; row++)
        rows[row] = row;
    sort_rows(rows, rows + length, length, columns[0].numbers);
    for (Py_ssize_t i = 0; i < length; i++)
        sizes[i] = need[rows[i]];
    fit_in_order(sizes, length, room, chosen);
    for (Py_ssize_t i = 0; i < length; i++) {
        int runs = held[rows[i]] > 0.0;
        changes[i] = runs == chosen[i] ? 0 : runs ? 1 : 2;
    }
    stopped = list_rows(rows, changes, 1, length);
    started = list_rows(rows, changes, 2, length);
    first = list_rows(rows, chosen, 1, length);
    if (stopped != NULL && started != NULL && first != NULL)
        result = PyTuple_Pack(3, stopped, started, first);
    Py_XDECREF(stopped);
    Py_XDECREF(started);
    Py_XDECREF(first);
done:
    PyMem_Free(rows);
    PyMem_Free(sizes);
    PyMem_Free(chosen);
    release_columns(columns, 3);
    return result;
}

/* `weft.pieces.fit.count_held(held, gpus, need)`. */
static PyObject *
count_held(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Column columns[3];
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "count_held takes held, gpus and need");
        return NULL;
    }
    if (get_columns(args, columns, 3) < 0)
        return NULL;
    const double *held = columns[0].numbers, *gpus = columns[1].numbers, *need = columns[2].numbers;
    Py_ssize_t length = columns[0].row.length, running = 0;
    double *sizes = PyMem_Malloc((length + 1) * sizeof *sizes);
    PyObject *result = NULL;
    if (sizes == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t row = 0; row < length; row++) {
        if (!(held[row] > 0.0))
            continue;
        if (held[row] != gpus[row]) {
            result = Py_NewRef(Py_None);
            goto done;
        }
        sizes[running++] = need[row];
    }
    result = PyFloat_FromDouble(weft_sum(sizes, running));
done:
    PyMem_Free(sizes);
    release_columns(columns, 3);
    return result;
}

/* `weft.sim.physics.work_left(seq, now, since, base, rate, length, left)`. */
static PyObject *
work_left(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "work_left takes seq, now, four columns and the result");
        return NULL;
    }
    double now = PyFloat_AsDouble(args[1]);
    if (now == -1.0 && PyErr_Occurred())
        return NULL;
    Column seq, of[4];
    Row left;
    if (get_columns(args, &seq, 1) < 0)
        return NULL;
    if (get_columns(args + 2, of, 4) < 0) {
        release_columns(&seq, 1);
        return NULL;
    }
    int failed = weft_get_floats(args[6], &left, 1) < 0;
    if (failed)
        goto done;
    failed = left.length != seq.row.length;
    for (Py_ssize_t i = 0; i < seq.row.length && !failed; i++) {
        Py_ssize_t at = (Py_ssize_t)seq.numbers[i];
        failed = at < 0 || at >= of[0].row.length;
        if (failed)
            break;
        double ran = now - of[0].numbers[at];
        double done = of[1].numbers[at] + of[2].numbers[at] * (ran > 0.0 || ran != ran ? ran : 0.0);
        double rest = of[3].numbers[at] - done;
        AT(left, double, i) = rest > 0.0 || rest != rest ? rest : 0.0;
    }
    if (failed)
        PyErr_SetString(PyExc_ValueError, "work_left: a number that there is no job of");
    weft_release(&left);
done:
    release_columns(of, 4);
    release_columns(&seq, 1);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    FUNCTION(choose_rows),
    FUNCTION(count_held),
    FUNCTION(list_waiting),
    FUNCTION(work_left),
    {NULL, NULL, 0, NULL},
};

int
weft_add_rows(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
