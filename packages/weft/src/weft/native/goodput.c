/* Goodput of jobs over batches: the best of an allocation's, the best of every size's. */
#include "native.h"

#include <math.h>
#include <string.h>

/* A table of floats, rows one after the other in memory; -1 and an exception for anything else. */
static int
get_table(PyObject *array, Py_buffer *table, int writable)
{
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array, table, flags) < 0)
        return -1;
    if (!writable && weft_is_number(table, OTHER_NUMBERS)) {
        PyBuffer_Release(table);
        if (weft_convert(array, "float64", flags, table) < 0)
            return -1;
    }
    if (table->ndim != 2 || !weft_is_number(table, "d")) {
        PyErr_SetString(PyExc_TypeError, "expected a table of floats");
        PyBuffer_Release(table);
        return -1;
    }
    return 0;
}

/* Two floats of a tuple; -1 and an exception for anything else. */
static int
get_pair(PyObject *pair, double *first, double *second)
{
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of two floats");
        return -1;
    }
    double numbers[2];
    if (weft_get_numbers(&PyTuple_GET_ITEM(pair, 0), 2, numbers) < 0)
        return -1;
    *first = numbers[0];
    *second = numbers[1];
    return 0;
}

/* Where `numpy.argmin` finds the least of what batches take for their noise: the first of equal
   ones, or the first that is no number. */
static Py_ssize_t
find_least(const double *batch, const double *took, Py_ssize_t count, double scaled, double sqr,
           double *least)
{
    Py_ssize_t best = 0;
    *least = NAN; /* of no batch at all */
    for (Py_ssize_t i = 0; i < count; i++) {
        double below = (scaled / batch[i] + sqr) * took[i];
        if (i == 0 || below < *least || isnan(below)) {
            *least = below;
            best = i;
            if (isnan(below))
                break;
        }
    }
    return best;
}

/* `weft.perf.goodput.model._best_trial`. */
static PyObject *
best_trial(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    double numbers[3];
    Py_buffer table;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "best_trial takes a table, init, sqr and var");
        return NULL;
    }
    if (weft_get_numbers(args + 1, 3, numbers) < 0 || get_table(args[0], &table, 0) < 0)
        return NULL;
    Py_ssize_t columns = table.shape[1];
    if (table.shape[0] != 4 || columns == 0) {
        PyBuffer_Release(&table);
        PyErr_SetString(PyExc_ValueError, "expected four rows, none of them empty");
        return NULL;
    }
    const double *batch = table.buf, *took = batch + columns;
    double init = numbers[0], sqr = numbers[1], var = numbers[2], least;
    Py_ssize_t best = find_least(batch, took, columns, var * init, sqr, &least);
    double local = took[columns + best], accumulate = took[2 * columns + best];
    PyBuffer_Release(&table);
    return Py_BuildValue("(ddd)", init * (var + sqr) / least, local, accumulate);
}

/* The arrays of `weft.perf.goodput.curves.Steps`, held until they are released. */
typedef struct {
    Row column, init, factor;
    Py_buffer batch, took;
    int held;
} Steps;

static void
release_steps(Steps *steps)
{
    if (steps->held > 4)
        PyBuffer_Release(&steps->took);
    if (steps->held > 3)
        PyBuffer_Release(&steps->batch);
    if (steps->held > 2)
        weft_release(&steps->factor);
    if (steps->held > 1)
        weft_release(&steps->init);
    if (steps->held > 0)
        PyBuffer_Release(&steps->column.buffer);
    steps->held = 0;
}

/* A row of whole numbers of the size of a pointer. */
static int
get_columns(PyObject *array, Row *row)
{
    if (PyObject_GetBuffer(array, &row->buffer, PyBUF_STRIDES | PyBUF_FORMAT) < 0)
        return -1;
    if (row->buffer.ndim != 1 || row->buffer.itemsize != sizeof(Py_ssize_t)
        || row->buffer.format == NULL || strchr("lqn", row->buffer.format[0]) == NULL) {
        PyErr_SetString(PyExc_TypeError, "expected a row of whole numbers");
        PyBuffer_Release(&row->buffer);
        return -1;
    }
    row->length = row->buffer.shape[0];
    row->stride = row->buffer.strides[0];
    return 0;
}

/* The arrays of one job, which must be of one length; on -1 nothing is held. */
static int
get_steps(PyObject *told, Steps *steps)
{
    steps->held = 0;
    if (!PyTuple_Check(told) || PyTuple_GET_SIZE(told) != 5) {
        PyErr_SetString(PyExc_TypeError, "steps are column, init, factor, batch and took");
        return -1;
    }
    PyObject **parts = &PyTuple_GET_ITEM(told, 0);
    if (get_columns(parts[0], &steps->column) < 0)
        return -1;
    steps->held = 1;
    if (weft_get_floats(parts[1], &steps->init, 0) < 0)
        goto failed;
    steps->held = 2;
    if (weft_get_floats(parts[2], &steps->factor, 0) < 0)
        goto failed;
    steps->held = 3;
    if (get_table(parts[3], &steps->batch, 0) < 0)
        goto failed;
    steps->held = 4;
    if (get_table(parts[4], &steps->took, 0) < 0)
        goto failed;
    steps->held = 5;
    Py_ssize_t sizes = steps->column.length;
    if (steps->init.length == sizes && steps->factor.length == sizes
        && steps->batch.shape[0] == sizes && steps->took.shape[0] == sizes
        && steps->batch.shape[1] == steps->took.shape[1] && steps->batch.shape[1] > 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "steps of different lengths");
failed:
    release_steps(steps);
    return -1;
}

/* The goodputs of one job into its row; -1 and an exception for a column that is not there. */
static int
fill_row(const Steps *steps, double sqr, double var, double *row, Py_ssize_t columns)
{
    Py_ssize_t candidates = steps->batch.shape[1];
    const double *batch = steps->batch.buf, *took = steps->took.buf;
    for (Py_ssize_t i = 0; i < steps->column.length; i++) {
        Py_ssize_t column = AT(steps->column, Py_ssize_t, i);
        double init = AT(steps->init, double, i), least;
        if (column < 0 || column >= columns) {
            PyErr_SetString(PyExc_IndexError, "a column that is not there");
            return -1;
        }
        find_least(batch + i * candidates, took + i * candidates, candidates, var * init, sqr,
                   &least);
        row[column] = init * (var + sqr) / least * AT(steps->factor, double, i);
    }
    return 0;
}

/* One of the pairs that `fill_goodputs` takes: steps, and squared norm and variance. */
static int
fill_from(PyObject *job, double *row, Py_ssize_t columns)
{
    double sqr, var;
    Steps steps;
    if (!PyTuple_Check(job) || PyTuple_GET_SIZE(job) != 2) {
        PyErr_SetString(PyExc_TypeError, "a job is its steps and its noise");
        return -1;
    }
    if (get_pair(PyTuple_GET_ITEM(job, 1), &sqr, &var) < 0
        || get_steps(PyTuple_GET_ITEM(job, 0), &steps) < 0)
        return -1;
    int filled = fill_row(&steps, sqr, var, row, columns);
    release_steps(&steps);
    return filled;
}

/* `weft.perf.goodput.curves._fill_goodputs`. */
static PyObject *
fill_goodputs(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Py_buffer goodputs;
    if (count != 2 || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "fill_goodputs takes a table and a list of jobs");
        return NULL;
    }
    if (get_table(args[0], &goodputs, 1) < 0)
        return NULL;
    Py_ssize_t rows = PyList_GET_SIZE(args[1]), columns = goodputs.shape[1];
    int filled = 0;
    if (goodputs.shape[0] != rows) {
        PyErr_SetString(PyExc_ValueError, "a row for each job is expected");
        filled = -1;
    }
    for (Py_ssize_t i = 0; i < rows && filled == 0; i++)
        filled = fill_from(PyList_GET_ITEM(args[1], i), (double *)goodputs.buf + i * columns,
                           columns);
    PyBuffer_Release(&goodputs);
    if (filled < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* `bisect.bisect_left` over a tuple of floats; -1 and an exception for anything else. */
static Py_ssize_t
find_left(PyObject *sizes, double batch)
{
    Py_ssize_t low = 0, high = PyTuple_GET_SIZE(sizes);
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        double size = PyFloat_AsDouble(PyTuple_GET_ITEM(sizes, middle));
        if (size == -1.0 && PyErr_Occurred())
            return -1;
        if (size < batch)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* `weft.perf.goodput.tables.noise_between`: squared norm and variance at a batch size. */
static int
find_noise(PyObject *sizes, PyObject *stats, double batch, double *noise)
{
    double ends[2], before[2], after[2], part = 1.0;
    Py_ssize_t known = PyTuple_GET_SIZE(sizes), above = find_left(sizes, batch);
    if (above < 0)
        return -1;
    if (above == 0)
        return get_pair(PyTuple_GET_ITEM(stats, 0), &noise[0], &noise[1]);
    if (above == known)
        above--;
    else {
        if (weft_get_numbers(&PyTuple_GET_ITEM(sizes, above - 1), 2, ends) < 0)
            return -1;
        part = (batch - ends[0]) / (ends[1] - ends[0]);
    }
    PyObject *last = PyTuple_GET_ITEM(stats, above ? above - 1 : 0);
    if (get_pair(last, &before[0], &before[1]) < 0
        || get_pair(PyTuple_GET_ITEM(stats, above), &after[0], &after[1]) < 0)
        return -1;
    for (int i = 0; i < 2; i++)
        noise[i] = before[i] + part * (after[i] - before[i]);
    return 0;
}

/* `weft.perf.goodput.adaptive._true_speed`. */
static PyObject *
true_speed(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    double numbers[4], noise[2];
    if (count != 6 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[1])
        || PyTuple_GET_SIZE(args[0]) != PyTuple_GET_SIZE(args[1])
        || PyTuple_GET_SIZE(args[0]) == 0) {
        PyErr_SetString(PyExc_TypeError, "true_speed takes sizes, as many pairs, four numbers");
        return NULL;
    }
    if (weft_get_numbers(args + 2, 4, numbers) < 0
        || find_noise(args[0], args[1], numbers[0], noise) < 0)
        return NULL;
    double batch = numbers[0], init = numbers[1], took = numbers[2], slowdown = numbers[3];
    double sqr = noise[0], var = noise[1], scale = init == 0.0 ? 0.0 : batch / init;
    double below = scale == 0.0 ? 0.0 : var / scale + sqr;
    if (below == 0.0 || took == 0.0 || slowdown == 0.0) {
        PyErr_SetString(PyExc_ZeroDivisionError, "float division by zero");
        return NULL;
    }
    return Py_BuildValue("d(dd)", (var + sqr) / below / took / slowdown, sqr, var);
}

static PyMethodDef functions[] = {
    {"best_trial", (PyCFunction)(void (*)(void))best_trial, METH_FASTCALL, NULL},
    {"fill_goodputs", (PyCFunction)(void (*)(void))fill_goodputs, METH_FASTCALL, NULL},
    {"true_speed", (PyCFunction)(void (*)(void))true_speed, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int
weft_add_goodput(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
