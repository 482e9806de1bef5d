/* The module `weft.native._native`: functions that exist in Python too, with equal results. */
#include "native.h"

int
weft_is_number(const Py_buffer *buffer, const char *formats)
{
    const char *format = buffer->format == NULL ? "B" : buffer->format;
    return strlen(format) == 1 && strchr(formats, format[0]) != NULL;
}

int
weft_convert(PyObject *array, const char *type, int flags, Py_buffer *buffer)
{
    PyObject *copy = PyObject_CallMethod(array, "astype", "s", type);
    if (copy == NULL)
        return -1;
    int failed = PyObject_GetBuffer(copy, buffer, flags);
    Py_DECREF(copy);
    return failed;
}

int
weft_get_floats(PyObject *array, Row *row, int writable)
{
    int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array, &row->buffer, flags) < 0)
        return -1;
    if (!writable && weft_is_number(&row->buffer, OTHER_NUMBERS)) {
        PyBuffer_Release(&row->buffer);
        if (weft_convert(array, "float64", flags, &row->buffer) < 0)
            return -1;
    }
    if (row->buffer.ndim != 1 || !weft_is_number(&row->buffer, "d")) {
        PyErr_SetString(PyExc_TypeError, "expected a row of floats");
        PyBuffer_Release(&row->buffer);
        return -1;
    }
    row->length = row->buffer.shape[0];
    row->stride = row->buffer.strides[0];
    return 0;
}

void
weft_release(Row *row)
{
    PyBuffer_Release(&row->buffer);
}

int
weft_get_numbers(PyObject *const *objects, Py_ssize_t count, double *numbers)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        numbers[i] = PyFloat_AsDouble(objects[i]);
        if (numbers[i] == -1.0 && PyErr_Occurred())
            return -1; /* the next object may run code of its own, with no exception set */
    }
    return 0;
}

double
weft_sum(const double *numbers, Py_ssize_t count)
{
    if (count > 128) {
        Py_ssize_t half = count / 2 - count / 2 % 8;
        return weft_sum(numbers, half) + weft_sum(numbers + half, count - half);
    }
    double sum = 0.0;
    Py_ssize_t i = 0;
    if (count >= 8) {
        double part[8];
        for (; i < 8; i++)
            part[i] = numbers[i];
        for (; i + 8 <= count; i += 8)
            for (int j = 0; j < 8; j++)
                part[j] += numbers[i + j];
        sum = ((part[0] + part[1]) + (part[2] + part[3]))
              + ((part[4] + part[5]) + (part[6] + part[7]));
    }
    for (; i < count; i++)
        sum += numbers[i];
    return sum;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "weft.native._native",
    .m_doc = "Functions that exist in Python too, with equal results.",
    .m_size = -1,
};

static int (*const parts[])(PyObject *) = {
    weft_add_frozen,
    weft_add_ledger,
    weft_add_rows,
    weft_add_table,
    weft_add_fit,
    weft_add_goodput,
    weft_add_program,
    weft_add_choice,
    weft_add_exact,
    weft_add_prices,
    weft_add_values,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    int failed = PyModule_AddStringConstant(module, "DIGEST", DIGEST) < 0;
    for (size_t i = 0; !failed && i < sizeof(parts) / sizeof(parts[0]); i++)
        failed = parts[i](module) < 0;
    if (failed)
        Py_CLEAR(module);
    return module;
}
