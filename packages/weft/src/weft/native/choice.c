/* Programs of few jobs: what each takes at given prices, within what there is. */
#include "choice.h"

#include <math.h>

static const double EPS = 1e-9;

/* A job that would move to another size; those with the lowest key move first. */
typedef struct {
    double key, takes;
    Py_ssize_t job, to;
} Move;

/* A program with what jobs hold, what that leaves of each kind, and room for a list of moves. */
typedef struct {
    Program program;
    Py_ssize_t *pick;
    double *tops; /* what the best size leaves each job at the prices, at least 0 */
    double *room;
    Move *moves;
} Work;

static void
close_work(Work *work)
{
    PyMem_Free(work->pick);
    PyMem_Free(work->tops);
    PyMem_Free(work->room);
    PyMem_Free(work->moves);
    weft_free_program(&work->program);
}

/* `weft.solve.few_jobs.as_problem`: with other numbers a repair would not end. */
static int
check_amounts(const Program *program, const double *prices)
{
    int sound = 1;
    for (Py_ssize_t k = 0; k < program->kinds; k++)
        sound &= program->capacity[k] >= -EPS && isfinite(program->capacity[k])
                 && (prices == NULL || isfinite(prices[k]));
    for (Py_ssize_t size = 0; size < program->sizes; size++)
        sound &= isfinite(program->count[size]);
    for (Py_ssize_t i = 0; i < program->jobs * program->sizes; i++)
        sound &= program->value[i] < INFINITY;
    if (!sound)
        PyErr_SetString(PyExc_ValueError, "expected finite capacities and sizes of at least 0");
    return sound ? 0 : -1;
}

static int
open_work(PyObject *const *arrays, PyObject *prices, Work *work)
{
    if (weft_read_program(arrays, prices, &work->program) < 0)
        return -1;
    const double *after = work->program.capacity + work->program.kinds; /* the prices, if any */
    if (check_amounts(&work->program, prices == NULL ? NULL : after) < 0) {
        weft_free_program(&work->program);
        return -1;
    }
    size_t jobs = (size_t)work->program.jobs + 1, kinds = (size_t)work->program.kinds + 1;
    work->pick = PyMem_Malloc(jobs * sizeof(Py_ssize_t));
    work->tops = PyMem_Malloc(jobs * sizeof(double));
    work->room = PyMem_Malloc(kinds * sizeof(double));
    work->moves = PyMem_Malloc(jobs * sizeof(Move));
    if (work->pick == NULL || work->tops == NULL || work->room == NULL || work->moves == NULL) {
        close_work(work);
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* `Plain.best`: the first of the best sizes of each job, and what it leaves the job. */
static void
take_best(Work *work)
{
    const Program *program = &work->program;
    for (Py_ssize_t job = 0; job < program->jobs; job++) {
        const double *value = program->value + job * program->sizes;
        double top = value[0] - program->cost[0];
        Py_ssize_t at = 0;
        for (Py_ssize_t size = 1; size < program->sizes; size++) {
            double net = value[size] - program->cost[size];
            if (net > top) {
                top = net;
                at = size;
            }
        }
        work->pick[job] = top > 0.0 ? at : NONE;
        work->tops[job] = top > 0.0 ? top : 0.0;
    }
}

/* `Plain.room`. */
static void
find_room(Work *work)
{
    const Program *program = &work->program;
    for (Py_ssize_t k = 0; k < program->kinds; k++)
        work->room[k] = 0.0;
    for (Py_ssize_t job = 0; job < program->jobs; job++)
        if (work->pick[job] >= 0)
            work->room[program->kind[work->pick[job]]] += program->count[work->pick[job]];
    for (Py_ssize_t k = 0; k < program->kinds; k++)
        work->room[k] = program->capacity[k] - work->room[k];
}

static Py_ssize_t
find_scarcest(const Work *work)
{
    Py_ssize_t scarcest = 0;
    for (Py_ssize_t k = 1; k < work->program.kinds; k++)
        if (work->room[k] < work->room[scarcest])
            scarcest = k;
    return scarcest;
}

/* `Plain._move`. */
static void
move(Work *work, Py_ssize_t job, Py_ssize_t to)
{
    const Program *program = &work->program;
    Py_ssize_t now = work->pick[job];
    if (now >= 0)
        work->room[program->kind[now]] += program->count[now];
    work->pick[job] = to;
    if (to >= 0)
        work->room[program->kind[to]] -= program->count[to];
}

/* Puts one more move behind those with the same key or a lower one. */
static void
insert(Move *moves, Py_ssize_t count, Move one)
{
    Py_ssize_t at = count;
    for (; at > 0 && one.key < moves[at - 1].key; at--)
        moves[at] = moves[at - 1];
    moves[at] = one;
}

static double
larger(double one, double other)
{
    return other > one ? other : one;
}

static double
smaller(double one, double other)
{
    return other < one ? other : one;
}

/* Where a job on kind `k` loses least for a freed GPU. */
static Move
find_cheapest(const Work *work, Py_ssize_t job, Py_ssize_t k, double missing)
{
    const Program *program = &work->program;
    const double *value = program->value + job * program->sizes;
    Py_ssize_t now = work->pick[job];
    double held = program->count[now], net = value[now] - program->cost[now];
    Move best = {INFINITY, 0.0, job, 0};
    for (Py_ssize_t size = 0; size < program->sizes; size++) {
        Py_ssize_t of = program->kind[size];
        if (of != k && !(program->count[size] <= work->room[of] + EPS))
            continue;
        double still = of == k ? program->count[size] : 0.0;
        if (!(held > still))
            continue;
        double useful = smaller(larger(held - still, EPS), missing);
        double loss = (net - (value[size] - program->cost[size])) / useful;
        if (loss < best.key) {
            best.key = loss;
            best.to = size;
        }
    }
    double loss = net / smaller(larger(held, EPS), missing);
    if (held > 0.0 && loss < best.key) {
        best.key = loss;
        best.to = NONE;
    }
    return best;
}

/* `Plain._shed`: one pass over the jobs on kind `k`. */
static void
shed(Work *work, Py_ssize_t k)
{
    const Program *program = &work->program;
    double missing = larger(-work->room[k], 1.0);
    Py_ssize_t count = 0;
    for (Py_ssize_t job = 0; job < program->jobs; job++)
        if (work->pick[job] >= 0 && program->kind[work->pick[job]] == k) {
            insert(work->moves, count, find_cheapest(work, job, k, missing));
            count++;
        }
    for (Py_ssize_t i = 0; i < count && work->room[k] < -EPS; i++) {
        Py_ssize_t to = work->moves[i].to;
        if (work->moves[i].key == INFINITY)
            return; /* the rest hold nothing that they could free */
        if (to >= 0 && program->kind[to] != k
            && program->count[to] > work->room[program->kind[to]])
            return; /* another kind has filled up meanwhile: choose again */
        move(work, work->moves[i].job, to);
    }
}

/* What gains a job most for a GPU; its `to` is NONE where nothing does. */
static Move
find_richest(const Work *work, Py_ssize_t job)
{
    const Program *program = &work->program;
    const double *value = program->value + job * program->sizes;
    Py_ssize_t now = work->pick[job];
    Py_ssize_t own = now >= 0 ? program->kind[now] : NONE;
    double held = now >= 0 ? program->count[now] : 0.0, worth = now >= 0 ? value[now] : 0.0;
    double best = -INFINITY;
    Move richest = {0.0, 0.0, job, NONE};
    for (Py_ssize_t size = 0; size < program->sizes; size++) {
        double gain = value[size] - worth;
        if (!(gain > 1e-12))
            continue;
        Py_ssize_t of = program->kind[size];
        double extra = of == own ? program->count[size] - held : program->count[size];
        if (!(extra <= work->room[of] + EPS))
            continue;
        double density = gain / larger(extra, 1e-3);
        if (density > best) {
            best = density;
            richest = (Move){-density, extra, job, size};
        }
    }
    return richest;
}

/* `Plain._fill`: one pass over the jobs; whether any moved. */
static int
fill(Work *work)
{
    Py_ssize_t count = 0;
    int moved = 0;
    for (Py_ssize_t job = 0; job < work->program.jobs; job++) {
        Move richest = find_richest(work, job);
        if (richest.to >= 0)
            insert(work->moves, count++, richest);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Move one = work->moves[i];
        if (one.takes <= work->room[work->program.kind[one.to]] + EPS) {
            move(work, one.job, one.to);
            moved = 1;
        }
    }
    return moved;
}

/* `Plain.repair` of what each job takes; -1 where a signal or its numbers end it. */
static int
repair(Work *work, long passes)
{
    find_room(work);
    for (Py_ssize_t left = 1 + work->program.jobs * (work->program.sizes + 1);; left--) {
        Py_ssize_t k = find_scarcest(work);
        if (!(work->room[k] < -EPS))
            break;
        if (left == 0) {
            PyErr_SetString(PyExc_ValueError, "values and prices are too far apart to compare");
            return -1;
        }
        shed(work, k);
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
    while (passes-- > 0 && fill(work))
        ;
    return 0;
}

/* `weft.solve.few_jobs.take_at_prices`: what jobs take, and the sum of what is left to them. */
static PyObject *
take_at_prices(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Work work;
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError,
                        "take_at_prices takes values, kinds, counts, capacities, prices, passes");
        return NULL;
    }
    long passes = PyLong_AsLong(args[5]);
    if ((passes == -1 && PyErr_Occurred()) || open_work(args, args[4], &work) < 0)
        return NULL;
    take_best(&work);
    double left = weft_sum(work.tops, work.program.jobs);
    PyObject *pick = NULL;
    if (repair(&work, passes) == 0)
        pick = weft_list_of(work.pick, work.program.jobs);
    close_work(&work);
    return pick == NULL ? NULL : Py_BuildValue("(Nd)", pick, left);
}

/* `weft.solve.few_jobs.take_freely`: the best for each where all fit, else None. */
static PyObject *
take_freely(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Work work;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "take_freely takes values, kinds, counts, capacities");
        return NULL;
    }
    if (open_work(args, NULL, &work) < 0)
        return NULL;
    const Program *program = &work.program;
    take_best(&work);
    int fits = 1;
    for (Py_ssize_t k = 0; k < program->kinds; k++) {
        double used = 0.0;
        for (Py_ssize_t job = 0; job < program->jobs; job++)
            if (work.pick[job] >= 0 && program->kind[work.pick[job]] == k)
                used += program->count[work.pick[job]];
        fits &= used <= program->capacity[k] + EPS;
    }
    PyObject *pick = fits ? weft_list_of(work.pick, program->jobs) : Py_NewRef(Py_None);
    close_work(&work);
    return pick;
}

/* `Plain.settle` of one job: whether the slack leaves it several sizes; else it has its size. */
static int
is_undecided(Work *work, Py_ssize_t job, double slack)
{
    const Program *program = &work->program;
    const double *value = program->value + job * program->sizes;
    Py_ssize_t alive = 0, first = NONE;
    for (Py_ssize_t size = 0; size < program->sizes; size++)
        if (work->tops[job] - (value[size] - program->cost[size]) <= slack && alive++ == 0)
            first = size;
    int undecided = alive + (work->tops[job] <= slack) > 1;
    work->pick[job] = undecided ? NONE : first;
    return undecided;
}

/* The program of the undecided jobs with the sizes left to them; `undecided` are their numbers.
   It keeps their values where those of all jobs were: each row moves up, never down. */
static Program
leave_undecided(Work *work, double slack, Py_ssize_t *undecided)
{
    Program open = work->program;
    open.jobs = 0;
    for (Py_ssize_t job = 0; job < work->program.jobs; job++) {
        if (!is_undecided(work, job, slack))
            continue;
        const double *from = work->program.value + job * open.sizes;
        double *to = open.value + open.jobs * open.sizes;
        for (Py_ssize_t size = 0; size < open.sizes; size++) {
            int alive = work->tops[job] - (from[size] - open.cost[size]) <= slack;
            to[size] = alive ? from[size] : -INFINITY;
        }
        undecided[open.jobs++] = job;
    }
    return open;
}

/* What jobs take if those that are undecided share what is left in the best way; [] where nothing
   is, None where that has more than `states` cells. */
static PyObject *
close_open(Work *work, double slack, double states, Py_ssize_t *undecided, Py_ssize_t *chosen)
{
    take_best(work);
    Program open = leave_undecided(work, slack, undecided);
    find_room(work);
    if (work->room[find_scarcest(work)] < -EPS || open.jobs == 0)
        return PyList_New(0);
    double cells = 1.0;
    for (Py_ssize_t k = 0; k < open.kinds; k++)
        cells *= work->room[k] + 1.0;
    if (!(cells <= states))
        Py_RETURN_NONE;
    if (weft_fill_grid(&open, work->room, chosen) < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < open.jobs; i++)
        work->pick[undecided[i]] = chosen[i];
    return weft_list_of(work->pick, work->program.jobs);
}

/* `weft.solve.few_jobs.close_exactly`. */
static PyObject *
close_exactly(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    Work work;
    if (count != 7) {
        PyErr_SetString(
            PyExc_TypeError,
            "close_exactly takes values, kinds, counts, capacities, prices, slack, states");
        return NULL;
    }
    double numbers_of[2];
    if (weft_get_numbers(args + 5, 2, numbers_of) < 0 || open_work(args, args[4], &work) < 0)
        return NULL;
    PyObject *pick = NULL;
    Py_ssize_t *numbers = PyMem_Malloc((size_t)(2 * work.program.jobs + 1) * sizeof(Py_ssize_t));
    if (numbers == NULL)
        PyErr_NoMemory();
    else
        pick = close_open(&work, numbers_of[0], numbers_of[1], numbers, numbers + work.program.jobs);
    PyMem_Free(numbers);
    close_work(&work);
    return pick;
}

static PyMethodDef functions[] = {
    {"take_at_prices", (PyCFunction)(void (*)(void))take_at_prices, METH_FASTCALL, NULL},
    {"take_freely", (PyCFunction)(void (*)(void))take_freely, METH_FASTCALL, NULL},
    {"close_exactly", (PyCFunction)(void (*)(void))close_exactly, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int
weft_add_choice(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
