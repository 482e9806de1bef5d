/* The module `weft.native._native`: functions that exist in Python too, with equal results. */
#include "native.h"

int
weft_get_floats(PyObject *array, Row *row, int writable)
{
    int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array, &row->buffer, flags) < 0)
        return -1;
    if (row->buffer.ndim != 1 || row->buffer.format == NULL || row->buffer.format[0] != 'd') {
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

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "weft.native._native",
    .m_doc = "Functions that exist in Python too, with equal results.",
    .m_size = -1,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (PyModule_AddStringConstant(module, "DIGEST", DIGEST) < 0 || weft_add_rows(module) < 0
        || weft_add_fit(module) < 0 || weft_add_goodput(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
