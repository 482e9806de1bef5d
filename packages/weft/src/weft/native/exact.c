/* The best choice of all, by dynamic programming over what is left of each kind. */
#include "choice.h"

#include <math.h>

static const double EPS = 1e-9, EQUAL = 1e-12;
/* That many cells, of that many jobs, are sooner looked at one by one than kept in tables. */
enum { FEW_CELLS = 400, FEW_JOBS = 8 };

typedef struct {
    Py_ssize_t size, kind, count;
    double worth;
} Offer;

typedef struct {
    const Offer *offers;
    const Py_ssize_t *first; /* where the offers to each job begin, and where the last ones end */
    const Py_ssize_t *stride; /* of each kind in a table */
    const double *tables;     /* of no job, of the first, ...; each has `cells` */
    Py_ssize_t cells;
    Py_ssize_t kept; /* jobs with a table */
} Grid;

/* What a table of the first `jobs` jobs holds, or would hold, in the cell of what is left. */
static double
look_up(const Grid *grid, Py_ssize_t jobs, Py_ssize_t *left, Py_ssize_t cell)
{
    if (jobs == 0)
        return 0.0;
    if (jobs <= grid->kept)
        return grid->tables[jobs * grid->cells + cell];
    double best = look_up(grid, jobs - 1, left, cell);
    for (Py_ssize_t i = grid->first[jobs - 1]; i < grid->first[jobs]; i++) {
        const Offer *offer = &grid->offers[i];
        if (left[offer->kind] < offer->count)
            continue;
        left[offer->kind] -= offer->count;
        Py_ssize_t rest = cell - offer->count * grid->stride[offer->kind];
        double worth = look_up(grid, jobs - 1, left, rest) + offer->worth;
        left[offer->kind] += offer->count;
        if (worth > best)
            best = worth;
    }
    return best;
}

/* `weft.solve.exact._trace`: what each job took; of equals nothing, then the first. */
static void
trace(const Grid *grid, Py_ssize_t jobs, Py_ssize_t *left, Py_ssize_t cell, Py_ssize_t *pick)
{
    for (Py_ssize_t job = jobs - 1; job >= 0; job--) {
        double reached = look_up(grid, job + 1, left, cell) - EQUAL;
        pick[job] = NONE;
        if (look_up(grid, job, left, cell) >= reached)
            continue;
        for (Py_ssize_t i = grid->first[job]; i < grid->first[job + 1]; i++) {
            const Offer *offer = &grid->offers[i];
            if (left[offer->kind] < offer->count)
                continue;
            left[offer->kind] -= offer->count;
            Py_ssize_t rest = cell - offer->count * grid->stride[offer->kind];
            if (look_up(grid, job, left, rest) + offer->worth >= reached) {
                pick[job] = offer->size;
                cell = rest;
                break;
            }
            left[offer->kind] += offer->count;
        }
    }
}

/* One more job: each cell of `after`, a copy of `before`, with the best of its offers. */
static void
add_job(const Grid *grid, Py_ssize_t job, const Py_ssize_t *shape, const double *restrict before,
        double *restrict after)
{
    for (Py_ssize_t i = grid->first[job]; i < grid->first[job + 1]; i++) {
        Offer offer = grid->offers[i];
        Py_ssize_t block = shape[offer.kind] * grid->stride[offer.kind];
        Py_ssize_t skip = offer.count * grid->stride[offer.kind];
        for (Py_ssize_t at = 0; at < grid->cells; at += block) {
            const double *from = before + at;
            double *to = after + at + skip;
            for (Py_ssize_t cell = 0; cell < block - skip; cell++) {
                double worth = from[cell] + offer.worth;
                to[cell] = to[cell] > worth ? to[cell] : worth;
            }
        }
    }
}

static int
is_offered(double worth)
{
    return worth > 0.0 && worth < INFINITY;
}

/* How many of each kind, up to its room, all jobs together could use; then the grid's cells. */
static int
shape_grid(const Program *program, const double *room, double *useful, Py_ssize_t *shape)
{
    for (Py_ssize_t k = 0; k < program->kinds; k++) {
        useful[k] = 0.0;
        for (Py_ssize_t job = 0; job < program->jobs; job++) {
            const double *value = program->value + job * program->sizes;
            double most = -INFINITY;
            for (Py_ssize_t size = 0; size < program->sizes; size++)
                if (program->kind[size] == k && is_offered(value[size])
                    && program->count[size] > most)
                    most = program->count[size];
            if (most > -INFINITY)
                useful[k] += most;
        }
        double cells = (useful[k] < room[k] ? useful[k] : room[k]) + EPS;
        if (!(cells > -1.0 && cells < 1e9)) {
            PyErr_SetString(PyExc_ValueError, "there is no grid of so much room");
            return -1;
        }
        shape[k] = (Py_ssize_t)cells + 1;
    }
    return 0;
}

/* The offers that fit into the grid, job by job. */
static void
list_offers(const Program *program, const Py_ssize_t *shape, Offer *offers, Py_ssize_t *first)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t job = 0; job < program->jobs; job++) {
        first[job] = count;
        for (Py_ssize_t size = 0; size < program->sizes; size++) {
            double worth = program->value[job * program->sizes + size];
            Py_ssize_t kind = program->kind[size];
            if (is_offered(worth) && program->count[size] < (double)shape[kind])
                offers[count++] = (Offer){size, kind, (Py_ssize_t)program->count[size], worth};
        }
    }
    first[program->jobs] = count;
}

/* The jobs that need a table: all but the last, whose few choices are looked at one by one. */
static Py_ssize_t
count_kept(const Py_ssize_t *first, Py_ssize_t jobs)
{
    Py_ssize_t cells = 1, kept = jobs;
    while (kept > 0 && jobs - kept < FEW_JOBS) {
        cells *= first[kept] - first[kept - 1] + 1;
        if (cells > FEW_CELLS)
            break;
        kept--;
    }
    return kept;
}

int
weft_fill_grid(const Program *program, const double *room, Py_ssize_t *pick)
{
    Py_ssize_t jobs = program->jobs, kinds = program->kinds, cells = 1;
    int result = -1;
    Offer *offers = PyMem_Malloc((size_t)(jobs * program->sizes + 1) * sizeof(Offer));
    Py_ssize_t *numbers = PyMem_Calloc((size_t)(jobs + 1 + 3 * kinds), sizeof(Py_ssize_t));
    double *useful = PyMem_Malloc((size_t)(kinds + 1) * sizeof(double)), *tables = NULL;
    if (offers == NULL || numbers == NULL || useful == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    Py_ssize_t *first = numbers, *shape = first + jobs + 1, *stride = shape + kinds;
    Py_ssize_t *left = stride + kinds, last = 0;
    if (shape_grid(program, room, useful, shape) < 0)
        goto done;
    list_offers(program, shape, offers, first);
    Py_ssize_t kept = count_kept(first, jobs);
    for (Py_ssize_t k = kinds - 1; k >= 0; k--) {
        stride[k] = cells;
        if (cells > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(double) / (kept + 1) / shape[k]) {
            PyErr_NoMemory();
            goto done;
        }
        cells *= shape[k];
        left[k] = shape[k] - 1;
        last += left[k] * stride[k];
    }
    tables = PyMem_Malloc((size_t)(cells * (kept + 1)) * sizeof(double));
    if (tables == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    Grid grid = {offers, first, stride, tables, cells, kept};
    if (kept > 0)
        memset(tables, 0, (size_t)cells * sizeof(double));
    for (Py_ssize_t job = 0; job < kept; job++) {
        double *before = tables + job * cells, *after = before + cells;
        memcpy(after, before, (size_t)cells * sizeof(double));
        add_job(&grid, job, shape, before, after);
    }
    trace(&grid, jobs, left, last, pick);
    result = 0;
done:
    PyMem_Free(tables);
    PyMem_Free(useful);
    PyMem_Free(numbers);
    PyMem_Free(offers);
    return result;
}

/* `weft.solve.exact.fill_grid`. */
static PyObject *
fill_grid(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Program program;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "fill_grid takes values, kinds, counts and the room");
        return NULL;
    }
    if (weft_read_program(args, NULL, &program) < 0)
        return NULL;
    PyObject *list = NULL;
    Py_ssize_t *pick = PyMem_Malloc((size_t)(program.jobs + 1) * sizeof(Py_ssize_t));
    if (pick == NULL)
        PyErr_NoMemory();
    else if (weft_fill_grid(&program, program.capacity, pick) == 0)
        list = weft_list_of(pick, program.jobs);
    PyMem_Free(pick);
    weft_free_program(&program);
    return list;
}

static PyMethodDef functions[] = {
    {"fill_grid", (PyCFunction)(void (*)(void))fill_grid, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int
weft_add_exact(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
