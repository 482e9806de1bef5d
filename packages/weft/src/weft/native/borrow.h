/* Arrays of Python, borrowed for the time of a call. */
#ifndef WEFT_BORROW_H
#define WEFT_BORROW_H

#include "native.h"

enum { MOST_BORROWED = 16 };

/* Arrays that are released together. */
typedef struct {
    Py_buffer buffer[MOST_BORROWED];
    int count;
} Borrowed;

/* Borrows an array of floats, or of whole numbers, with that many dimensions.
 * Other numbers are read as a copy. */
int weft_borrow(PyObject *array, int dimensions, int whole, int flags, Py_buffer *buffer);

/* One more array; where its numbers begin, or NULL and an exception. */
void *weft_borrow_more(Borrowed *borrowed, PyObject *array, int dimensions, int whole, int flags);

/* Releases all; the answer of a function: None, or an exception if lengths do not agree. */
PyObject *weft_finish(Borrowed *borrowed, int agrees);

/* -1 and an exception for a call with another number of arguments. */
int weft_check_count(Py_ssize_t count, Py_ssize_t wanted);

#endif
