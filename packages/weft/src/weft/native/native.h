/* What the parts of the module share. */
#ifndef WEFT_NATIVE_H
#define WEFT_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Each part adds its functions to the module; -1 and an exception where it cannot. */
int weft_add_frozen(PyObject *module);
int weft_add_ledger(PyObject *module);
int weft_add_table(PyObject *module);
int weft_add_rows(PyObject *module);
int weft_add_fit(PyObject *module);
int weft_add_goodput(PyObject *module);
int weft_add_program(PyObject *module);
int weft_add_choice(PyObject *module);
int weft_add_exact(PyObject *module);
int weft_add_prices(PyObject *module);
int weft_add_values(PyObject *module);

/* A row of floats (or of whole numbers) in memory, borrowed from an array until it is released. */
typedef struct {
    Py_buffer buffer;
    Py_ssize_t length;
    Py_ssize_t stride; /* in bytes */
} Row;

/* A function with its arguments in an array, for the table of a part. */
#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

#define AT(row, type, i) (*(type *)((char *)(row).buffer.buf + (i) * (row).stride))

/* Numbers that are read as floats where an array has none, as numpy reads them,
 * and those of them that are whole. */
#define OTHER_NUMBERS "efbBhHiIlLqQ?"
#define WHOLE_NUMBERS "bBhHiIlLqQ?"

/* Whether each number of a buffer is of one of these formats. */
int weft_is_number(const Py_buffer *buffer, const char *formats);

/* The buffer of a copy of an array whose numbers are of `type`; the copy goes with the buffer. */
int weft_convert(PyObject *array, const char *type, int flags, Py_buffer *buffer);

/* Floats are read where they lie, and other numbers, which cannot be written to, as a copy. */
int weft_get_floats(PyObject *array, Row *row, int writable);
void weft_release(Row *row);

/* Floats of objects; -1 and an exception at the first that is something else. */
int weft_get_numbers(PyObject *const *objects, Py_ssize_t count, double *numbers);

/* The sum of numbers that follow each other in memory, added up in the order of numpy. */
double weft_sum(const double *numbers, Py_ssize_t count);

#endif
