/* The fit of step times: all of `weft.perf.goodput.fit._fit_rows` in one call. */
#include "native.h"

#include <math.h>
#include <stddef.h>

#define COUNT 7 /* parameters */

static const double START[COUNT] = {0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.2};
static const double GAMMA_LEAST = 1.0, GAMMA_MOST = 10.0;
static const double TINY = 1e-8, FLOOR = 1e-4, LEAST_S = 1e-12;
static const double GAMMA_PULL = 1e-3, SLOPE_PULL = 1e-2;
static const int STEPS = 60;
enum { ALONE = 0, APART = 2, TOGETHER = 4 };

/* One measured configuration. */
typedef struct {
    double nodes, replicas, local, grad_s, step_s;
    double log_grad, log_step;
    int regime;
    double extra; /* what the slope of a synchronisation is multiplied by */
} Measured;

/* Errors of one row at some parameters, and their slopes. */
typedef struct {
    double off_grad, off_step;
    double by_grad[COUNT], by_step[COUNT];
} Slopes;

typedef struct {
    double loss;
    double pull[COUNT];
    double curve[COUNT][COUNT];
} At;

typedef struct {
    Py_ssize_t count;
    Measured *rows;
    Slopes *slopes;
} Problem;

/* `max` and `min` of Python: the first unless the second is beyond it. */
static double
larger(double first, double second)
{
    return second > first ? second : first;
}

static double
smaller(double first, double second)
{
    return second < first ? second : first;
}

/* `_line`: slope and intercept of the line nearest to gradient times over batches. */
static void
find_line(const Problem *problem, double *slope, double *rest)
{
    double middle = 0.0, height = 0.0, above = 0.0, below = 0.0;
    for (Py_ssize_t i = 0; i < problem->count; i++) {
        middle += problem->rows[i].local;
        height += problem->rows[i].grad_s;
    }
    middle /= (double)problem->count;
    height /= (double)problem->count;
    for (Py_ssize_t i = 0; i < problem->count; i++) {
        const Measured *row = &problem->rows[i];
        above += (row->local - middle) * (row->grad_s - height);
        below += (row->local - middle) * (row->local - middle);
    }
    *slope = above / below;
    *rest = height - above / below * middle;
}

/* `_start`, its first part: the parameters of gradients; whether the first of them is fitted. */
static int
start_gradients(const Problem *problem, double *start)
{
    const Measured *rows = problem->rows;
    double total = 0.0, least = rows[0].grad_s;
    int equal = 1;
    for (Py_ssize_t i = 0; i < problem->count; i++) {
        equal = equal && rows[i].local == rows[0].local;
        total += rows[i].grad_s;
        least = smaller(least, rows[i].grad_s);
    }
    if (equal) {
        start[0] = total / (double)problem->count / 2.0;
        start[1] = start[0] / rows[0].local;
        return 0;
    }
    double slope, rest;
    find_line(problem, &slope, &rest);
    start[0] = larger(rest, 0.01 * least);
    start[1] = larger(slope, 1e-3 * least);
    return 1;
}

/* `_start`, its second part: the mean of what rows of a regime waited, or -1 where none ran so. */
static double
mean_wait(const Problem *problem, int regime)
{
    double total = 0.0;
    Py_ssize_t inside = 0;
    for (Py_ssize_t i = 0; i < problem->count; i++) {
        const Measured *row = &problem->rows[i];
        if (regime == APART ? row->nodes > 1.0 : row->nodes == 1.0 && row->replicas > 1.0) {
            total += larger(row->step_s - row->grad_s, 0.01 * row->step_s);
            inside++;
        }
    }
    return inside ? total / (double)inside : -1.0;
}

/* `_start`: where to start, and which parameters to fit; returns how many. */
static int
find_start(const Problem *problem, double *start, int *which)
{
    int fixed[COUNT] = {0}, several = 0, free = 0;
    memcpy(start, START, sizeof START);
    for (int at = APART; at <= TOGETHER; at += 2) {
        double waited = mean_wait(problem, at);
        fixed[at] = fixed[at + 1] = waited < 0.0;
        start[at] = waited;
        start[at + 1] = 0.02 * waited;
    }
    for (Py_ssize_t i = 0; i < problem->count; i++)
        several = several || problem->rows[i].replicas > 2.0;
    if (!several)
        fixed[3] = fixed[5] = 1;
    for (int at = 2; at < 6; at++)
        if (fixed[at])
            start[at] = TINY;
    fixed[0] = !start_gradients(problem, start);
    for (int at = 0; at < COUNT; at++)
        if (!fixed[at])
            which[free++] = at;
    return free;
}

/* One row of `Problem.at`. */
static void
find_slopes(const Measured *row, const double *p, Slopes *slopes)
{
    double gamma = p[6], more = p[1] * row->local, grad = p[0] + more;
    double log_a = log(grad), first = TINY, rest = 0.0, a, b, top, over_a, over_b;
    if (row->regime != ALONE) {
        first = p[row->regime];
        rest = p[row->regime + 1] * row->extra;
    }
    double wait = first + rest, log_b = log(wait);
    if (log_a >= log_b) {
        a = 1.0;
        over_a = 0.0;
        over_b = log_b - log_a;
        b = exp(gamma * over_b);
        top = log_a;
    } else {
        b = 1.0;
        over_b = 0.0;
        over_a = log_a - log_b;
        a = exp(gamma * over_a);
        top = log_b;
    }
    double both = a + b, log_z = log(both) / gamma;
    double fixed_part = p[0] / grad, more_part = more / grad;
    a /= both;
    b /= both;
    memset(slopes, 0, sizeof *slopes);
    slopes->off_grad = log_a - row->log_grad;
    slopes->off_step = top + log_z - row->log_step;
    slopes->by_grad[0] = fixed_part;
    slopes->by_grad[1] = more_part;
    slopes->by_step[0] = a * fixed_part;
    slopes->by_step[1] = a * more_part;
    slopes->by_step[6] = (a * over_a + b * over_b - log_z) / gamma;
    if (row->regime != ALONE) {
        double share = b / wait;
        slopes->by_step[row->regime] = share * first;
        slopes->by_step[row->regime + 1] = share * rest;
    }
}

/* A row of `_sum`: what one error adds. */
static void
add_error(At *at, double error, double weight, const double *by)
{
    for (int i = 0; i < COUNT; i++) {
        double weighted = by[i] * weight;
        at->pull[i] += weighted * error;
        for (int j = 0; j < COUNT; j++)
            at->curve[i][j] += weighted * by[j];
    }
}

/* A slope over its intercept is pulled to 0; `first` is where the intercept is. */
static void
add_pull(At *at, int first, double ratio)
{
    double by[COUNT] = {0.0};
    by[first] = -ratio;
    by[first + 1] = ratio;
    add_error(at, ratio, SLOPE_PULL, by);
}

/* The errors of gradients or of steps, `off` and `by` into a row of slopes. */
static void
add_errors(const Problem *problem, At *at, size_t off, size_t by)
{
    double squares = 0.0, count = (double)problem->count;
    for (Py_ssize_t i = 0; i < problem->count; i++) {
        double error = *(double *)((char *)&problem->slopes[i] + off);
        squares += error * error;
    }
    double rmse = sqrt(squares / count + FLOOR * FLOOR), weight = 0.5 / (count * rmse);
    at->loss += rmse;
    for (Py_ssize_t i = 0; i < problem->count; i++) {
        char *slopes = (char *)&problem->slopes[i];
        add_error(at, *(double *)(slopes + off), weight, (double *)(slopes + by));
    }
}

/* `Problem.at` and `_sum`. */
static void
evaluate_at(const Problem *problem, const double *p, At *at)
{
    static const double by_gamma[COUNT] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0};
    double over = p[6] - 1.0, apart = p[3] / p[2], together = p[5] / p[4];
    memset(at, 0, sizeof *at);
    at->loss = GAMMA_PULL * over * over + SLOPE_PULL * (apart * apart + together * together);
    add_error(at, over, GAMMA_PULL, by_gamma);
    add_pull(at, APART, apart);
    add_pull(at, TOGETHER, together);
    for (Py_ssize_t i = 0; i < problem->count; i++)
        find_slopes(&problem->rows[i], p, &problem->slopes[i]);
    add_errors(problem, at, offsetof(Slopes, off_grad), offsetof(Slopes, by_grad));
    add_errors(problem, at, offsetof(Slopes, off_step), offsetof(Slopes, by_step));
}

/* `_solve`: the answer lies in `b`; 0 where there is no one answer. */
static int
solve(double a[COUNT][COUNT], double *b, int count)
{
    for (int i = 0; i < count; i++) {
        int top = i;
        for (int row = i + 1; row < count; row++)
            if (fabs(a[row][i]) > fabs(a[top][i]))
                top = row;
        if (a[top][i] == 0.0)
            return 0;
        for (int column = 0; column < count; column++) {
            double kept = a[i][column];
            a[i][column] = a[top][column];
            a[top][column] = kept;
        }
        double kept = b[i];
        b[i] = b[top];
        b[top] = kept;
        for (int row = i + 1; row < count; row++) {
            double factor = a[row][i] / a[i][i];
            for (int column = i + 1; column < count; column++)
                a[row][column] -= factor * a[i][column];
            b[row] -= factor * b[i];
        }
    }
    for (int i = count - 1; i >= 0; i--) {
        for (int column = i + 1; column < count; column++)
            b[i] -= a[i][column] * b[column];
        b[i] /= a[i][i];
    }
    return 1;
}

/* `_move`. */
static void
move(const double *p, const int *which, const double *step, int count, double *moved)
{
    double whole[COUNT] = {0.0};
    for (int i = 0; i < count; i++)
        whole[which[i]] = smaller(larger(step[i], -3.0), 3.0);
    for (int i = 0; i < COUNT; i++)
        moved[i] = larger(p[i] * exp(whole[i]), TINY);
    double turned = p[6] + smaller(larger(whole[6], -1.0), 1.0);
    moved[6] = smaller(larger(turned, GAMMA_LEAST), GAMMA_MOST);
}

/* `minimise`: `p` is the start, and then the best. */
static void
minimise(const Problem *problem, double *p, const int *which, int count)
{
    double damping = 1e-2;
    At now, after;
    evaluate_at(problem, p, &now);
    for (int step = 0; step < STEPS; step++) {
        double curve[COUNT][COUNT], down[COUNT], trial[COUNT];
        for (int i = 0; i < count; i++) {
            for (int j = 0; j < count; j++)
                curve[i][j] = now.curve[which[i]][which[j]];
            curve[i][i] += damping * (curve[i][i] + 1e-9);
            down[i] = -now.pull[which[i]];
        }
        if (!solve(curve, down, count))
            return;
        move(p, which, down, count, trial);
        evaluate_at(problem, trial, &after);
        if (after.loss < now.loss) {
            int done = now.loss - after.loss < 3e-4 * now.loss;
            memcpy(p, trial, sizeof trial);
            now = after;
            damping = larger(damping * 0.2, 1e-9);
            if (done)
                return;
        } else {
            damping *= 8.0;
            if (damping > 1e6)
                return;
        }
    }
}

/* One row of Python, a tuple of five numbers; -1 and an exception for anything else. */
static int
read_row(PyObject *told, Measured *row)
{
    if (!PyTuple_Check(told) || PyTuple_GET_SIZE(told) != 5) {
        PyErr_SetString(PyExc_TypeError, "a row is nodes, replicas, local, grad_s and step_s");
        return -1;
    }
    double *numbers[] = {&row->nodes, &row->replicas, &row->local, &row->grad_s, &row->step_s};
    for (int i = 0; i < 5; i++) {
        *numbers[i] = PyFloat_AsDouble(PyTuple_GET_ITEM(told, i));
        if (*numbers[i] == -1.0 && PyErr_Occurred())
            return -1;
    }
    row->grad_s = larger(row->grad_s, LEAST_S);
    row->step_s = larger(row->step_s, LEAST_S);
    row->log_grad = log(row->grad_s);
    row->log_step = log(row->step_s);
    row->regime = row->replicas == 1.0 ? ALONE : row->nodes > 1.0 ? APART : TOGETHER;
    row->extra = larger(row->replicas - 2.0, TINY);
    return 0;
}

/* `_fit_rows` of rows that were read. */
static PyObject *
fit_problem(const Problem *problem)
{
    double p[COUNT];
    int which[COUNT], apart = 0, count = find_start(problem, p, which);
    minimise(problem, p, which, count);
    for (Py_ssize_t i = 0; i < problem->count; i++)
        apart = apart || problem->rows[i].nodes > 1.0;
    if (!apart) {
        p[2] = larger(p[2], 1.1 * p[4]);
        p[3] = larger(p[3], 1.1 * p[5]);
    }
    return Py_BuildValue("[ddddddd]", p[0], p[1], p[2], p[3], p[4], p[5], p[6]);
}

static PyObject *
fit_rows(PyObject *Py_UNUSED(self), PyObject *rows)
{
    if (!PyTuple_Check(rows) || PyTuple_GET_SIZE(rows) == 0) {
        PyErr_SetString(PyExc_TypeError, "fit_rows takes a tuple of one or more rows");
        return NULL;
    }
    PyObject *fitted = NULL;
    Problem problem = {.count = PyTuple_GET_SIZE(rows)};
    problem.rows = PyMem_New(Measured, problem.count);
    problem.slopes = PyMem_New(Slopes, problem.count);
    if (problem.rows == NULL || problem.slopes == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    for (Py_ssize_t i = 0; i < problem.count; i++)
        if (read_row(PyTuple_GET_ITEM(rows, i), &problem.rows[i]) < 0)
            goto end;
    fitted = fit_problem(&problem);
end:
    PyMem_Free(problem.rows);
    PyMem_Free(problem.slopes);
    return fitted;
}

static PyMethodDef functions[] = {
    {"fit_rows", fit_rows, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int
weft_add_fit(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
