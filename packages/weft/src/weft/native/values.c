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
    double numbers[2];
    if (weft_get_numbers(args + ALL, 2, numbers) < 0)
        return NULL;
    Holder job = {.loss_s = numbers[0], .least = numbers[1]};
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

/* What one job would lose, size by size; `costs` are by kind, as `read_costs` has them. */
enum { FIRST, AGAIN, LIVE, PAUSE, SENT, PREPARE, COSTS };

static double
cost_of(const Py_buffer *costs, int which, Py_ssize_t row, Py_ssize_t kind)
{
    const char *at = (char *)costs->buf + which * costs->strides[0];
    return *(double *)(at + row * costs->strides[1] + kind * costs->strides[2]);
}

/* Arrays: costs; rows held, reported, attempt, devices; sizes' gpus; tables start, change, ready,
   moved; then whole numbers: kinds of sizes, and of what rows hold. */
enum { OF, SIZE_HELD, REPORTED, ATTEMPT, DEVICES, GPUS, TO_START, TO_CHANGE, TO_READY, MOVED };
enum { KIND = MOVED + 1, OWN, CHANGES };

static int
fill_changes_of(const Py_buffer *all, Py_ssize_t row)
{
    Py_ssize_t sizes = all[GPUS].shape[0], own = -1;
    const Py_ssize_t *kind = all[KIND].buf;
    double held = ITEM(&all[SIZE_HELD], row), count = 0.0;
    if (held > -1.0) {
        if (!(held < (double)sizes)) {
            PyErr_SetString(PyExc_IndexError, "there is no size of that number");
            return -1;
        }
        own = kind[(Py_ssize_t)held];
        count = ITEM(&all[GPUS], (Py_ssize_t)held);
    }
    ((Py_ssize_t *)all[OWN].buf)[row] = own;
    double reported = ITEM(&all[REPORTED], row);
    int trains = ITEM(&all[DEVICES], row) > 0.0 && reported == ITEM(&all[ATTEMPT], row);
    for (Py_ssize_t size = 0; size < sizes; size++) {
        Py_ssize_t k = kind[size];
        int live = cost_of(&all[OF], LIVE, row, k) > 0.0 && trains, same = own == k;
        int fewer = same && ITEM(&all[GPUS], size) < count;
        double start = cost_of(&all[OF], reported == 0.0 ? FIRST : AGAIN, row, k);
        double sent = fewer ? 0.0 : cost_of(&all[OF], SENT, row, k);
        CELL(&all[TO_START], row, size) = start;
        CELL(&all[TO_CHANGE], row, size)
            = live ? cost_of(&all[OF], PAUSE, row, k) + sent : start;
        CELL(&all[TO_READY], row, size) = live && !fewer ? cost_of(&all[OF], PREPARE, row, k) : 0.0;
        CELL(&all[MOVED], row, size) = live && !same ? count : 0.0;
    }
    return 0;
}

static int
do_changes_agree(const Py_buffer *all)
{
    Py_ssize_t rows = all[SIZE_HELD].shape[0], sizes = all[GPUS].shape[0];
    const Py_ssize_t *kind = all[KIND].buf;
    for (int i = REPORTED; i <= DEVICES; i++)
        if (all[i].shape[0] != rows)
            return 0;
    for (int i = TO_START; i <= MOVED; i++)
        if (all[i].shape[0] != rows || all[i].shape[1] != sizes)
            return 0;
    if (all[OF].shape[0] != COSTS || all[OF].shape[1] != rows || all[KIND].shape[0] != sizes
        || all[OWN].shape[0] != rows)
        return 0;
    for (Py_ssize_t size = 0; size < sizes; size++)
        if (kind[size] < 0 || kind[size] >= all[OF].shape[2])
            return 0;
    return 1;
}

/* `weft.pieces.size.change_seconds.fill_changes`. */
static PyObject *
fill_changes(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Borrowed borrowed = {.count = 0};
    if (weft_check_count(count, CHANGES) < 0)
        return NULL;
    for (int i = 0; i < CHANGES; i++) {
        int dimensions = i == OF ? 3 : i >= TO_START && i <= MOVED ? 2 : 1;
        int flags = (i >= KIND ? PyBUF_C_CONTIGUOUS : PyBUF_STRIDES)
                    | ((i >= TO_START && i <= MOVED) || i == OWN ? PyBUF_WRITABLE : 0);
        if (weft_borrow_more(&borrowed, args[i], dimensions, i >= KIND, flags) == NULL)
            return weft_finish(&borrowed, 0);
    }
    if (!do_changes_agree(borrowed.buffer))
        return weft_finish(&borrowed, 0);
    for (Py_ssize_t row = 0; row < borrowed.buffer[SIZE_HELD].shape[0]; row++)
        if (fill_changes_of(borrowed.buffer, row) < 0)
            break;
    return weft_finish(&borrowed, 1);
}

/* `weft.pieces.order.finish_time.fill_speeds`: rows on the mean of all GPUs there are. */
static PyObject *
fill_speeds(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Borrowed borrowed = {.count = 0};
    if (weft_check_count(count, 6) < 0)
        return NULL;
    for (int i = 0; i < 6; i++) {
        int flags = i == 5 ? PyBUF_C_CONTIGUOUS : PyBUF_STRIDES | (i == 4 ? PyBUF_WRITABLE : 0);
        if (weft_borrow_more(&borrowed, args[i], i == 0 ? 2 : 1, i == 5, flags) == NULL)
            return weft_finish(&borrowed, 0);
    }
    const Py_buffer *goodput = &borrowed.buffer[0], *gpus = goodput + 1, *asked = goodput + 2;
    const Py_buffer *there = goodput + 3, *speed = goodput + 4;
    const Py_ssize_t *kind = borrowed.buffer[5].buf;
    Py_ssize_t rows = goodput->shape[0], sizes = goodput->shape[1];
    if (gpus->shape[0] != sizes || asked->shape[0] != rows || speed->shape[0] != rows
        || borrowed.buffer[5].shape[0] != sizes)
        return weft_finish(&borrowed, 0);
    for (Py_ssize_t row = 0; row < rows; row++) {
        ITEM(speed, row) = 0.0;
        for (Py_ssize_t k = 0; k < there->shape[0]; k++) {
            double most = 0.0;
            for (Py_ssize_t size = 0; size < sizes; size++)
                if (kind[size] == k && ITEM(gpus, size) <= ITEM(asked, row))
                    most = larger(most, CELL(goodput, row, size));
            ITEM(speed, row) += ITEM(there, k) * most;
        }
    }
    return weft_finish(&borrowed, 1);
}

static const double INVALID = 1e-4;

/* Goodputs of one job over its worst, in GPUs of one replica; less for what it would restart for. */
static void
fill_levels_of(const Py_buffer *goodput, const Py_buffer *units, Py_ssize_t row, double held,
               double factor, const Py_buffer *level)
{
    double least = INFINITY;
    Py_ssize_t worst = 0, sizes = goodput->shape[1];
    for (Py_ssize_t size = 0; size < sizes; size++)
        if (CELL(goodput, row, size) > 0.0 && CELL(goodput, row, size) < least) {
            least = CELL(goodput, row, size);
            worst = size;
        }
    least = CELL(goodput, row, worst) > 0.0 ? CELL(goodput, row, worst) : 1.0;
    double unit = larger(CELL(units, row, worst), 1.0);
    for (Py_ssize_t size = 0; size < sizes; size++) {
        int allowed = CELL(goodput, row, size) > 0.0;
        double own = allowed ? unit * CELL(goodput, row, size) / least : INVALID;
        int moves = allowed && held >= 0.0 && held != (double)size;
        CELL(level, row, size) = moves ? own * factor : own;
    }
}

/* `weft.pieces.size.levels.fill_levels`. */
static PyObject *
fill_levels(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Borrowed borrowed = {.count = 0};
    if (weft_check_count(count, 5) < 0)
        return NULL;
    for (int i = 0; i < 5; i++) {
        int flags = PyBUF_STRIDES | (i == 2 ? PyBUF_WRITABLE : 0);
        if (weft_borrow_more(&borrowed, args[i], i < 3 ? 2 : 1, 0, flags) == NULL)
            return weft_finish(&borrowed, 0);
    }
    const Py_buffer *goodput = &borrowed.buffer[0], *units = goodput + 1, *level = goodput + 2;
    const Py_buffer *held = goodput + 3, *factor = goodput + 4;
    Py_ssize_t rows = goodput->shape[0], sizes = goodput->shape[1];
    if (sizes == 0 || units->shape[0] != rows || units->shape[1] != sizes
        || level->shape[0] != rows || level->shape[1] != sizes || held->shape[0] != rows
        || factor->shape[0] != rows)
        return weft_finish(&borrowed, 0);
    for (Py_ssize_t row = 0; row < rows; row++)
        fill_levels_of(goodput, units, row, ITEM(held, row), ITEM(factor, row), level);
    return weft_finish(&borrowed, 1);
}

static PyMethodDef functions[] = {
    {"fill_levels", (PyCFunction)(void (*)(void))fill_levels, METH_FASTCALL, NULL},
    {"fill_changes", (PyCFunction)(void (*)(void))fill_changes, METH_FASTCALL, NULL},
    {"fill_speeds", (PyCFunction)(void (*)(void))fill_speeds, METH_FASTCALL, NULL},
    {"fill_values", (PyCFunction)(void (*)(void))fill_values, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int
weft_add_values(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
