/* Single rows of the table of active jobs: its cells are a matrix of floats, a row for each column. */
#include "native.h"

#include <math.h>

/* Columns by number, as `weft.core.state.cells.TableColumns` has them. */
enum {
    ATTEMPT = 9,
    HELD = 10,
    STAGE = 8,
    RAN_BASE = 11,
    RAN_RATE = 12,
    RAN_SINCE = 13,
    SERVICE_BASE = 14,
    SERVICE_RATE = 15,
    SERVICE_SINCE = 16,
    STARTED = 17,
    COLUMNS = 22,
};

/* One row of the matrix. */
typedef struct {
    Py_buffer buffer;
    char *first;
    Py_ssize_t stride; /* in bytes, from column to column */
} Cells;

#define CELL(cells, column) (*(double *)((cells).first + (column) * (cells).stride))

static int
get_cells(PyObject *matrix, PyObject *number, Cells *cells)
{
    Py_ssize_t row = PyLong_AsSsize_t(number);
    if (row == -1 && PyErr_Occurred())
        return -1;
    Py_buffer *buffer = &cells->buffer;
    if (PyObject_GetBuffer(matrix, buffer, PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE) < 0)
        return -1;
    if (buffer->ndim != 2 || buffer->format == NULL || buffer->format[0] != 'd' ||
        buffer->shape[0] != COLUMNS || row < 0 || row >= buffer->shape[1]) {
        PyErr_SetString(PyExc_ValueError, "expected the cells of a table and one of its rows");
        PyBuffer_Release(buffer);
        return -1;
    }
    cells->first = (char *)buffer->buf + row * buffer->strides[1];
    cells->stride = buffer->strides[0];
    return 0;
}

static int
takes(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, not %zd", wanted, given);
    return 0;
}

/* `weft.core.state.cells.write_row(cells, row, values)`. */
static PyObject *
write_row(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Cells cells;
    if (!takes(count, 3) || get_cells(args[0], args[1], &cells) < 0)
        return NULL;
    int failed = !PyTuple_Check(args[2]) || PyTuple_GET_SIZE(args[2]) != COLUMNS;
    double values[COLUMNS];
    if (failed)
        PyErr_SetString(PyExc_ValueError, "expected a value for each column");
    else
        failed = weft_get_numbers(&PyTuple_GET_ITEM(args[2], 0), COLUMNS, values) < 0;
    for (Py_ssize_t i = 0; i < COLUMNS && !failed; i++)
        CELL(cells, i) = values[i];
    PyBuffer_Release(&cells.buffer);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* `weft.core.state.cells.hold(cells, row, gpus, stage)`. */
static PyObject *
hold(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Cells cells;
    if (!takes(count, 4))
        return NULL;
    double given[2];
    if (weft_get_numbers(args + 2, 2, given) < 0 || get_cells(args[0], args[1], &cells) < 0)
        return NULL;
    double attempt = trunc(CELL(cells, ATTEMPT)) + 1.0;
    PyObject *number = PyLong_FromDouble(attempt);
    if (number != NULL) {
        CELL(cells, ATTEMPT) = attempt;
        CELL(cells, HELD) = given[0];
        CELL(cells, STAGE) = given[1];
    }
    PyBuffer_Release(&cells.buffer);
    return number;
}

/* `weft.core.state.cells.switch_on(cells, row, now, gpus)`. */
static PyObject *
switch_on(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Cells cells;
    if (!takes(count, 4))
        return NULL;
    double given[2];
    if (weft_get_numbers(args + 2, 2, given) < 0 || get_cells(args[0], args[1], &cells) < 0)
        return NULL;
    double now = given[0], gpus = given[1];
    CELL(cells, RAN_RATE) = 1.0;
    CELL(cells, RAN_SINCE) = now;
    CELL(cells, SERVICE_RATE) = gpus;
    CELL(cells, SERVICE_SINCE) = now;
    if (CELL(cells, STARTED) == Py_HUGE_VAL)
        CELL(cells, STARTED) = now;
    PyBuffer_Release(&cells.buffer);
    Py_RETURN_NONE;
}

/* What the two meters show. */
static void
read_meters(const Cells *cells, double now, double *ran, double *served)
{
    *ran = CELL(*cells, RAN_BASE);
    *served = CELL(*cells, SERVICE_BASE);
    double rate = CELL(*cells, RAN_RATE);
    if (rate != 0.0) {
        *ran += rate * (now - CELL(*cells, RAN_SINCE));
        *served += CELL(*cells, SERVICE_RATE) * (now - CELL(*cells, SERVICE_SINCE));
    }
}

/* `weft.core.state.cells.switch_off(cells, row, now)`. */
static PyObject *
switch_off(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Cells cells;
    if (!takes(count, 3))
        return NULL;
    double ran, served, now = PyFloat_AsDouble(args[2]);
    if (PyErr_Occurred() || get_cells(args[0], args[1], &cells) < 0)
        return NULL;
    if (CELL(cells, RAN_RATE) != 0.0) {
        read_meters(&cells, now, &ran, &served);
        CELL(cells, RAN_BASE) = ran;
        CELL(cells, SERVICE_BASE) = served;
        CELL(cells, RAN_RATE) = CELL(cells, SERVICE_RATE) = 0.0;
    }
    CELL(cells, RAN_SINCE) = CELL(cells, SERVICE_SINCE) = now;
    PyBuffer_Release(&cells.buffer);
    Py_RETURN_NONE;
}

/* `weft.core.state.cells.read_row_meters(cells, row, now)`. */
static PyObject *
read_row_meters(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Cells cells;
    if (!takes(count, 3))
        return NULL;
    double ran, served, now = PyFloat_AsDouble(args[2]);
    if (PyErr_Occurred() || get_cells(args[0], args[1], &cells) < 0)
        return NULL;
    read_meters(&cells, now, &ran, &served);
    PyBuffer_Release(&cells.buffer);
    return Py_BuildValue("dd", ran, served);
}

/* `weft.core.state.cells.close_gap(cells, row, size)`: rows before the gap move up, or those after it
   down, whichever are fewer. */
static PyObject *
close_gap(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Cells cells;
    if (!takes(count, 3))
        return NULL;
    Py_ssize_t row = PyLong_AsSsize_t(args[1]), size = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || get_cells(args[0], args[1], &cells) < 0)
        return NULL;
    Py_ssize_t step = cells.buffer.strides[1];
    int wrong = row >= size || size > cells.buffer.shape[1] || step != sizeof(double);
    int front = row < size - row;
    for (Py_ssize_t i = 0; i < COLUMNS && !wrong; i++) {
        double *column = (double *)((char *)cells.buffer.buf + i * cells.stride);
        if (front)
            memmove(column + 1, column, row * sizeof(double));
        else
            memmove(column + row, column + row + 1, (size - 1 - row) * sizeof(double));
    }
    PyBuffer_Release(&cells.buffer);
    if (wrong) {
        PyErr_SetString(PyExc_ValueError, "expected the cells of a table, a row and its size");
        return NULL;
    }
    return PyBool_FromLong(front);
}

static PyMethodDef functions[] = {
    FUNCTION(close_gap),
    FUNCTION(hold),
    FUNCTION(read_row_meters),
    FUNCTION(switch_off),
    FUNCTION(switch_on),
    FUNCTION(write_row),
    {NULL, NULL, 0, NULL},
};

int
weft_add_table(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
