/* What sizes are worth to jobs that lose time whenever they change. */
#include "borrow.h"

#include <math.h>

#define CELL(buffer, i, j)                                                                        \
    (*(double *)((char *)(buffer)->buf + (i) * (buffer)->strides[0] + (j) * (buffer)->strides[1]))
#define ITEM(buffer, i) (*(double *)((char *)(buffer)->buf + (i) * (buffer)->strides[0]))

/* As numpy has them: what is no number stays none. */
static double
larger(double one, double other)
{
    return one > other || isnan(one) ? one : other;
}

static double
smaller(double one, double other)
{
    return one < other || isnan(one) ? one : other;
}

/* What concerns one job whatever its size. */
typedef struct {
    int has;      /* whether it holds a size */
    double size;  /* which */
    double now;   /* its speed there */
    double weight, left;
    double keep; /* what being stopped would cost */
    double loss_s, least;
} Holder;

/* What a size is worth, of that speed and with these seconds of a change. */
static double
value_of(const Holder *job, Py_ssize_t size, double speed, double cost, double ready, double rent,
         double rise_s)
{
    double w = job->weight, now = job->now, gained;
    if (job->size == (double)size)
        gained = w * speed;
    else if (job->has && speed <= now) {
        double shrunk = smaller(job->loss_s, job->left / larger(now, 1e-9) + cost);
        gained = w * speed - (w * now * cost + rent * ready) / larger(shrunk, 1.0);
    }
    else {
        double rise = larger(
            smaller(rise_s, job->left / larger(speed, 1e-9) + cost + ready), 1.0);
        gained = w * speed * larger(1.0 - (cost + ready) / rise, job->least);
        gained += (w * now - rent) * smaller(ready / rise, 1.0);
    }
    return job->has ? gained + job->keep : gained;
}

/* Tables: speed, start, change, ready, rent, rise, value; rows: held, weight, left. */
enum { SPEED, START, CHANGE, READY, RENT, RISE, VALUE, TABLES, HELD = TABLES, WEIGHT, LEFT, ALL };

static int
fill_job(const Py_buffer *all, Py_ssize_t row, Holder *job)
{
    Py_ssize_t sizes = all[SPEED].shape[1];
    job->size = ITEM(&all[HELD], row);
    job->weight = ITEM(&all[WEIGHT], row);
    job->left = ITEM(&all[LEFT], row);
    job->has = job->size >= 0.0;
    if (job->has && !(job->size < (double)sizes)) {
        PyErr_SetString(PyExc_IndexError, "there is no size of that number");
        return -1;
    }
    job->now = job->has ? CELL(&all[SPEED], row, (Py_ssize_t)job->size) : 0.0;
    double stop = CELL(&all[START], row, 0);
    for (Py_ssize_t size = 1; size < sizes; size++)
        stop = larger(stop, CELL(&all[START], row, size));
    double lost = smaller(job->loss_s, job->left / larger(job->now, 1e-9) + stop);
    job->keep = job->weight * job->now * stop / larger(lost, 1.0);
    for (Py_ssize_t size = 0; size < sizes; size++) {
        double cost = CELL(&all[job->has ? CHANGE : START], row, size);
        double ready = job->has ? CELL(&all[READY], row, size) : 0.0;
        CELL(&all[VALUE], row, size)
            = value_of(job, size, CELL(&all[SPEED], row, size), cost, ready,
                       CELL(&all[RENT], row, size), CELL(&all[RISE], row, size));
    }
    return 0;
}

static int
do_agree(const Py_buffer *all)
{
    Py_ssize_t rows = all[SPEED].shape[0], sizes = all[SPEED].shape[1];
    for (int table = 0; table < TABLES; table++)
        if (all[table].shape[0] != rows || all[table].shape[1] != sizes)
            return 0;
    return sizes > 0 && all[HELD].shape[0] == rows && all[WEIGHT].shape[0] == rows
           && all[LEFT].shape[0] == rows;
}

/* `weft.policies.weft.values.fill_values`. */
static PyObject *
fill_values(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Borrowed borrowed = {.count = 0};
    if (weft_check_count(count, ALL + 2) < 0)
        return NULL;
    Holder job = {.loss_s = PyFloat_AsDouble(args[ALL]), .least = PyFloat_AsDouble(args[ALL + 1])};
    if (PyErr_Occurred())
        return NULL;
    for (int i = 0; i < ALL; i++) {
        int flags = i == VALUE ? PyBUF_STRIDES | PyBUF_WRITABLE : PyBUF_STRIDES;
        if (weft_borrow_more(&borrowed, args[i], i < TABLES ? 2 : 1, 0, flags) == NULL)
            return weft_finish(&borrowed, 0);
    }
    if (!do_agree(borrowed.buffer))
        return weft_finish(&borrowed, 0);
    for (Py_ssize_t row = 0; row < borrowed.buffer[SPEED].shape[0]; row++)
        if (fill_job(borrowed.buffer, row, &job) < 0)
            break;
    return weft_finish(&borrowed, 1);
}

static PyMethodDef functions[] = {
    {"fill_values", (PyCFunction)(void (*)(void))fill_values, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int
weft_add_values(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
