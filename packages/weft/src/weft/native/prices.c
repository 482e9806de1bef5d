/* Prices of GPUs: the parts of a Newton step on a soft maximum that need neither exponentials nor
   matrices, which are numpy's. */
#include "borrow.h"
#include "choice.h"

#include <math.h>

/* The numbers of an array without gaps; NULL and an exception where it is another one. */
static void *
borrow(Borrowed *borrowed, PyObject *array, int dimensions, int whole, int writable)
{
    int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    return weft_borrow_more(borrowed, array, dimensions, whole, flags);
}

static Py_ssize_t
length_of(const Borrowed *borrowed, int array, int dimension)
{
    return borrowed->buffer[array].shape[dimension];
}

static int
are_kinds(const Py_ssize_t *kind, Py_ssize_t sizes, Py_ssize_t kinds)
{
    for (Py_ssize_t size = 0; size < sizes; size++)
        if (kind[size] < 0 || kind[size] >= kinds)
            return 0;
    return 1;
}

/* `weft.solve.prices.soften`: how far each size, and none, is below the best in steps of `t`. */
static PyObject *
soften(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Borrowed all = {.count = 0};
    if (weft_check_count(count, 6) < 0)
        return NULL;
    double t = PyFloat_AsDouble(args[4]);
    if (t == -1.0 && PyErr_Occurred())
        return NULL;
    double *value = borrow(&all, args[0], 2, 0, 0);
    Py_ssize_t *kind = value == NULL ? NULL : borrow(&all, args[1], 1, 1, 0);
    double *each = kind == NULL ? NULL : borrow(&all, args[2], 1, 0, 0);
    double *prices = each == NULL ? NULL : borrow(&all, args[3], 1, 0, 0);
    double *soft = prices == NULL ? NULL : borrow(&all, args[5], 2, 0, 1);
    if (soft == NULL)
        return weft_finish(&all, 0);
    Py_ssize_t jobs = length_of(&all, 0, 0), sizes = length_of(&all, 0, 1);
    if (length_of(&all, 1, 0) != sizes || length_of(&all, 2, 0) != sizes
        || length_of(&all, 4, 0) != jobs || length_of(&all, 4, 1) != sizes + 1
        || !are_kinds(kind, sizes, length_of(&all, 3, 0)))
        return weft_finish(&all, 0);
    for (Py_ssize_t job = 0; job < jobs; job++) {
        double *net = soft + job * (sizes + 1), top = 0.0;
        for (Py_ssize_t size = 0; size < sizes; size++) {
            net[size] = (value[job * sizes + size] - prices[kind[size]] * each[size]) / t;
            if (net[size] > top || isnan(net[size]))
                top = net[size];
        }
        for (Py_ssize_t size = 0; size < sizes; size++)
            net[size] -= top;
        net[sizes] = -top;
    }
    return weft_finish(&all, 1);
}

/* The part of each size in what a job takes, of exponentials whose last is of none. */
static void
part(const double *soft, Py_ssize_t sizes, double *weight)
{
    double whole = weft_sum(soft, sizes) + soft[sizes];
    for (Py_ssize_t size = 0; size < sizes; size++)
        weight[size] = soft[size] / whole;
}

/* The sum of the rows of a table, which numpy adds up in their order; a single column is a row. */
static void
add_rows(const double *table, Py_ssize_t rows, Py_ssize_t columns, double *sums)
{
    if (columns == 1) {
        sums[0] = weft_sum(table, rows);
        return;
    }
    for (Py_ssize_t column = 0; column < columns; column++)
        sums[column] = 0.0;
    for (Py_ssize_t row = 0; row < rows; row++)
        for (Py_ssize_t column = 0; column < columns; column++)
            sums[column] += table[row * columns + column];
}

/* `weft.solve.prices.weigh`: the parts of sizes in each job, and all of them by kind. */
static PyObject *
weigh(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Borrowed all = {.count = 0};
    if (weft_check_count(count, 4) < 0)
        return NULL;
    double *soft = borrow(&all, args[0], 2, 0, 0);
    double *belongs = soft == NULL ? NULL : borrow(&all, args[1], 2, 0, 0);
    double *weight = belongs == NULL ? NULL : borrow(&all, args[2], 2, 0, 1);
    double *spread = weight == NULL ? NULL : borrow(&all, args[3], 2, 0, 1);
    if (spread == NULL)
        return weft_finish(&all, 0);
    Py_ssize_t jobs = length_of(&all, 2, 0), sizes = length_of(&all, 2, 1);
    Py_ssize_t kinds = length_of(&all, 1, 1);
    if (length_of(&all, 0, 0) != jobs || length_of(&all, 0, 1) != sizes + 1
        || length_of(&all, 1, 0) != sizes || length_of(&all, 3, 0) != sizes
        || length_of(&all, 3, 1) != kinds)
        return weft_finish(&all, 0);
    double *sums = PyMem_Malloc((size_t)(sizes + 1) * sizeof(double));
    if (sums == NULL) {
        PyErr_NoMemory();
        return weft_finish(&all, 0);
    }
    for (Py_ssize_t job = 0; job < jobs; job++)
        part(soft + job * (sizes + 1), sizes, weight + job * sizes);
    add_rows(weight, jobs, sizes, sums);
    for (Py_ssize_t size = 0; size < sizes; size++)
        for (Py_ssize_t k = 0; k < kinds; k++)
            spread[size * kinds + k] = sums[size] * belongs[size * kinds + k];
    PyMem_Free(sums);
    return weft_finish(&all, 1);
}

/* `weft.solve.prices.bend`: the curve in place, and the slope with its sign turned. */
static PyObject *
bend(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Borrowed all = {.count = 0};
    if (weft_check_count(count, 6) < 0)
        return NULL;
    double t = PyFloat_AsDouble(args[4]);
    if (t == -1.0 && PyErr_Occurred())
        return NULL;
    double *curve = borrow(&all, args[0], 2, 0, 1);
    double *own = curve == NULL ? NULL : borrow(&all, args[1], 2, 0, 0);
    double *each = own == NULL ? NULL : borrow(&all, args[2], 2, 0, 0);
    double *capacity = each == NULL ? NULL : borrow(&all, args[3], 1, 0, 0);
    double *down = capacity == NULL ? NULL : borrow(&all, args[5], 1, 0, 1);
    if (down == NULL)
        return weft_finish(&all, 0);
    Py_ssize_t kinds = length_of(&all, 3, 0);
    if (length_of(&all, 0, 0) != kinds || length_of(&all, 0, 1) != kinds
        || length_of(&all, 1, 0) != kinds || length_of(&all, 1, 1) != kinds
        || length_of(&all, 2, 1) != kinds || length_of(&all, 4, 0) != kinds)
        return weft_finish(&all, 0);
    for (Py_ssize_t cell = 0; cell < kinds * kinds; cell++)
        curve[cell] = (curve[cell] - own[cell]) / t;
    for (Py_ssize_t k = 0; k < kinds; k++)
        down[k] = curve[k * kinds + k];
    double more = 1e-9 + 1e-6 * weft_sum(down, kinds);
    for (Py_ssize_t k = 0; k < kinds; k++)
        curve[k * kinds + k] += more;
    add_rows(each, length_of(&all, 2, 0), kinds, down);
    for (Py_ssize_t k = 0; k < kinds; k++)
        down[k] = -(capacity[k] - down[k]);
    return weft_finish(&all, 1);
}

/* `weft.solve.prices.go`: prices after a step that changes none too much, nor below 0. */
static PyObject *
go(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Borrowed all = {.count = 0};
    if (weft_check_count(count, 4) < 0)
        return NULL;
    double t = PyFloat_AsDouble(args[2]);
    if (t == -1.0 && PyErr_Occurred())
        return NULL;
    double *prices = borrow(&all, args[0], 1, 0, 0);
    double *step = prices == NULL ? NULL : borrow(&all, args[1], 1, 0, 0);
    double *after = step == NULL ? NULL : borrow(&all, args[3], 1, 0, 1);
    if (after == NULL)
        return weft_finish(&all, 0);
    Py_ssize_t kinds = length_of(&all, 0, 0);
    if (length_of(&all, 1, 0) != kinds || length_of(&all, 2, 0) != kinds)
        return weft_finish(&all, 0);
    for (Py_ssize_t k = 0; k < kinds; k++) {
        double limit = 0.5 * prices[k] + t, by = step[k];
        if (by < -limit)
            by = -limit;
        if (by > limit)
            by = limit;
        after[k] = prices[k] + by;
        if (after[k] < 0.0)
            after[k] = 0.0;
    }
    return weft_finish(&all, 1);
}

/* `weft.solve.prices.add_tops`: the sum of what their best sizes leave to jobs. */
static PyObject *
add_tops(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Program program;
    if (weft_check_count(count, 4) < 0 || weft_read_program(args, args[3], &program) < 0)
        return NULL;
    double *tops = PyMem_Malloc((size_t)(program.jobs + 1) * sizeof(double));
    PyObject *sum = NULL;
    for (Py_ssize_t job = 0; tops != NULL && job < program.jobs; job++) {
        tops[job] = 0.0;
        for (Py_ssize_t size = 0; size < program.sizes; size++) {
            double net = program.value[job * program.sizes + size] - program.cost[size];
            if (net > tops[job] || isnan(net))
                tops[job] = net;
        }
    }
    if (tops == NULL)
        PyErr_NoMemory();
    else
        sum = PyFloat_FromDouble(weft_sum(tops, program.jobs));
    PyMem_Free(tops);
    weft_free_program(&program);
    return sum;
}

static PyMethodDef functions[] = {
    {"soften", (PyCFunction)(void (*)(void))soften, METH_FASTCALL, NULL},
    {"weigh", (PyCFunction)(void (*)(void))weigh, METH_FASTCALL, NULL},
    {"bend", (PyCFunction)(void (*)(void))bend, METH_FASTCALL, NULL},
    {"go", (PyCFunction)(void (*)(void))go, METH_FASTCALL, NULL},
    {"add_tops", (PyCFunction)(void (*)(void))add_tops, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int
weft_add_prices(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
