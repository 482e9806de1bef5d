/* Multiple-choice programs as they come from Python: arrays that are copied. */
#include "borrow.h"
#include "choice.h"

/* Borrows an array that may lie in memory with gaps. */
static int
borrow(PyObject *array, int dimensions, int whole, Py_buffer *buffer)
{
    return weft_borrow(array, dimensions, whole, PyBUF_STRIDES, buffer);
}

/* Copies a row of numbers of 8 bytes that has to be as long as others are. */
static int
copy_row(PyObject *array, int whole, Py_ssize_t length, void *to)
{
    Py_buffer buffer;
    if (borrow(array, 1, whole, &buffer) < 0)
        return -1;
    int agrees = buffer.shape[0] == length;
    for (Py_ssize_t i = 0; agrees && i < length; i++)
        memcpy((char *)to + 8 * i, (char *)buffer.buf + i * buffer.strides[0], 8);
    PyBuffer_Release(&buffer);
    if (!agrees)
        PyErr_SetString(PyExc_ValueError, "the arrays of a program do not agree in length");
    return agrees ? 0 : -1;
}

static void
copy_table(const Py_buffer *buffer, double *to)
{
    Py_ssize_t rows = buffer->shape[0], columns = buffer->shape[1];
    for (Py_ssize_t i = 0; i < rows; i++) {
        const char *row = (char *)buffer->buf + i * buffer->strides[0];
        if (buffer->strides[1] == 8)
            memcpy(to + i * columns, row, (size_t)columns * 8);
        else
            for (Py_ssize_t j = 0; j < columns; j++)
                memcpy(to + i * columns + j, row + j * buffer->strides[1], 8);
    }
}

/* Sizes are of kinds that exist and take no less than nothing; costs are at the prices. */
static int
check_sizes(Program *program, const double *prices)
{
    for (Py_ssize_t size = 0; size < program->sizes; size++) {
        Py_ssize_t kind = program->kind[size];
        if (kind < 0 || kind >= program->kinds || !(program->count[size] >= 0.0)) {
            PyErr_SetString(PyExc_ValueError, "a size is of no kind, or of less than no GPU");
            return -1;
        }
        program->cost[size] = prices == NULL ? 0.0 : prices[kind] * program->count[size];
    }
    if (program->sizes > 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "there is no size to choose");
    return -1;
}

int
weft_read_program(PyObject *const *arrays, PyObject *prices, Program *program)
{
    Py_buffer value, capacity;
    if (borrow(arrays[3], 1, 0, &capacity) < 0)
        return -1;
    Py_ssize_t kinds = capacity.shape[0];
    PyBuffer_Release(&capacity);
    if (borrow(arrays[0], 2, 0, &value) < 0)
        return -1;
    Py_ssize_t jobs = value.shape[0], sizes = value.shape[1];
    program->jobs = jobs;
    program->sizes = sizes;
    program->kinds = kinds;
    program->value = PyMem_Malloc((size_t)(jobs * sizes + 2 * sizes + 2 * kinds + 1) * 8);
    program->kind = PyMem_Malloc((size_t)(sizes + 1) * sizeof(Py_ssize_t));
    if (program->value == NULL || program->kind == NULL) {
        PyBuffer_Release(&value);
        weft_free_program(program);
        PyErr_NoMemory();
        return -1;
    }
    copy_table(&value, program->value);
    PyBuffer_Release(&value);
    program->count = program->value + jobs * sizes;
    program->cost = program->count + sizes;
    program->capacity = program->cost + sizes;
    double *price = prices == NULL ? NULL : program->capacity + kinds;
    if (copy_row(arrays[1], 1, sizes, program->kind) < 0
        || copy_row(arrays[2], 0, sizes, program->count) < 0
        || copy_row(arrays[3], 0, kinds, program->capacity) < 0
        || (price != NULL && copy_row(prices, 0, kinds, price) < 0)
        || check_sizes(program, price) < 0) {
        weft_free_program(program);
        return -1;
    }
    return 0;
}

void
weft_free_program(Program *program)
{
    PyMem_Free(program->value);
    PyMem_Free(program->kind);
}

PyObject *
weft_list_of(const Py_ssize_t *numbers, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *number = PyLong_FromSsize_t(numbers[i]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, number);
    }
    return list;
}

/* The values of the picked sizes in a row, and how many; -1 where there is no such size. */
static Py_ssize_t
gather(const Py_buffer *value, const Py_ssize_t *pick, double *worths)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t job = 0; job < value->shape[0]; job++) {
        if (pick[job] < 0)
            continue;
        if (pick[job] >= value->shape[1]) {
            PyErr_SetString(PyExc_IndexError, "there is no size of that number");
            return -1;
        }
        const char *row = (char *)value->buf + job * value->strides[0];
        memcpy(&worths[count++], row + pick[job] * value->strides[1], 8);
    }
    return count;
}

/* `weft.solve.few_jobs.add_up`: what the sizes that jobs take are worth together. */
static PyObject *
add_up(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Py_buffer value;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "add_up takes values and the size of each job");
        return NULL;
    }
    if (borrow(args[0], 2, 0, &value) < 0)
        return NULL;
    size_t jobs = (size_t)value.shape[0] + 1;
    Py_ssize_t *pick = PyMem_Malloc(jobs * sizeof(Py_ssize_t)), found = -1;
    double *worths = PyMem_Malloc(jobs * sizeof(double));
    PyObject *sum = NULL;
    if (pick == NULL || worths == NULL)
        PyErr_NoMemory();
    else if (copy_row(args[1], 1, value.shape[0], pick) == 0)
        found = gather(&value, pick, worths);
    if (found >= 0)
        sum = PyFloat_FromDouble(weft_sum(worths, found));
    PyMem_Free(worths);
    PyMem_Free(pick);
    PyBuffer_Release(&value);
    return sum;
}

static PyMethodDef functions[] = {
    {"add_up", (PyCFunction)(void (*)(void))add_up, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int
weft_add_program(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
