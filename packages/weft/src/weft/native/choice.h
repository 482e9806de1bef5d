/* A multiple-choice program: jobs that each take one size, or none, within GPUs of each kind. */
#ifndef WEFT_CHOICE_H
#define WEFT_CHOICE_H

#include "native.h"

enum { NONE = -1 };

typedef struct {
    Py_ssize_t jobs, sizes, kinds;
    double *value;    /* jobs x sizes */
    Py_ssize_t *kind; /* of each size, and how many GPUs of it that takes */
    double *count;
    double *capacity; /* of each kind */
    double *cost;     /* of each size at some prices */
} Program;

/* Copies the arrays `value`, `kind`, `count`, `capacity` and, unless it is NULL, `prices`. */
int weft_read_program(PyObject *const *arrays, PyObject *prices, Program *program);
void weft_free_program(Program *program);

/* What each job takes of `room` in the best choice of all; -1 and an exception without memory. */
int weft_fill_grid(const Program *program, const double *room, Py_ssize_t *pick);

PyObject *weft_list_of(const Py_ssize_t *numbers, Py_ssize_t count);

#endif
