/* Rows of jobs: which fit, and in which order. */
#include "native.h"

static const double EPS = 1e-9;

/* `weft.pieces.fit._fit_few`: a scan in order that skips what does not fit. */
static PyObject *
fit_few(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "fit_few takes a list of sizes and the room");
        return NULL;
    }
    double room = PyFloat_AsDouble(args[1]);
    if (room == -1.0 && PyErr_Occurred())
        return NULL;
    Py_ssize_t length = PyList_GET_SIZE(args[0]);
    PyObject *chosen = PyList_New(length);
    if (chosen == NULL)
        return NULL;
    double taken = 0.0, most = room + EPS;
    for (Py_ssize_t i = 0; i < length; i++) {
        double size = PyFloat_AsDouble(PyList_GET_ITEM(args[0], i));
        if (size == -1.0 && PyErr_Occurred()) {
            Py_DECREF(chosen);
            return NULL;
        }
        double total = taken + size;
        int fits = total <= most;
        if (fits)
            taken = total;
        else if (size <= most) { /* a pass ends here */
            room -= taken;
            taken = 0.0;
            most = room + EPS;
        }
        PyList_SET_ITEM(chosen, i, PyBool_FromLong(fits));
    }
    return chosen;
}

static PyMethodDef functions[] = {
    {"fit_few", (PyCFunction)(void (*)(void))fit_few, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int
weft_add_rows(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
