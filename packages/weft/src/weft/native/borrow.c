/* Arrays of Python, borrowed for the time of a call. */
#include "borrow.h"

int
weft_borrow(PyObject *array, int dimensions, int whole, int flags, Py_buffer *buffer)
{
    flags |= PyBUF_FORMAT;
    if (PyObject_GetBuffer(array, buffer, flags) < 0)
        return -1;
    const char *right = whole ? "lq" : "d", *type = whole ? "int64" : "float64";
    int reads = (flags & PyBUF_WRITABLE) == 0;
    int as_asked = weft_is_number(buffer, right) && buffer->itemsize == 8;
    if (!as_asked && reads && weft_is_number(buffer, whole ? WHOLE_NUMBERS : OTHER_NUMBERS)) {
        PyBuffer_Release(buffer);
        if (weft_convert(array, type, flags, buffer) < 0)
            return -1;
        as_asked = weft_is_number(buffer, right) && buffer->itemsize == 8;
    }
    if (as_asked && buffer->ndim == dimensions)
        return 0;
    PyErr_Format(PyExc_TypeError, "expected %s in %d dimensions",
                 whole ? "whole numbers" : "floats", dimensions);
    PyBuffer_Release(buffer);
    return -1;
}

void *
weft_borrow_more(Borrowed *borrowed, PyObject *array, int dimensions, int whole, int flags)
{
    if (borrowed->count == MOST_BORROWED) {
        PyErr_SetString(PyExc_SystemError, "too many arrays for one call");
        return NULL;
    }
    Py_buffer *buffer = &borrowed->buffer[borrowed->count];
    if (weft_borrow(array, dimensions, whole, flags, buffer) < 0)
        return NULL;
    borrowed->count++;
    return buffer->buf;
}

PyObject *
weft_finish(Borrowed *borrowed, int agrees)
{
    while (borrowed->count > 0)
        PyBuffer_Release(&borrowed->buffer[--borrowed->count]);
    if (PyErr_Occurred())
        return NULL;
    if (agrees)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "the arrays of a program do not agree in length");
    return NULL;
}

int
weft_check_count(Py_ssize_t count, Py_ssize_t wanted)
{
    if (count == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "expected %zd arguments", wanted);
    return -1;
}
