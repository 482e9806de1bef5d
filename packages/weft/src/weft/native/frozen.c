/* Frozen values: `weft.frozen` lets a class be called without `__init__`, straight into its slots. */
#include "native.h"
#include <structmember.h>

typedef struct {
    PyObject *name;     /* interned */
    int is_given;       /* whether callers may give it; if not it has its default */
    PyObject *fallback; /* a default value, or NULL */
    PyObject *factory;  /* what makes one, or NULL */
    Py_ssize_t offset;  /* of the slot in a value */
} Field;

typedef struct {
    Py_ssize_t count;
    Py_ssize_t positional;
    PyObject *check; /* `__post_init__`, or NULL */
    Field fields[];
} Layout;

static const char CAPSULE[] = "weft.native.layout";
static PyObject *layouts; /* of each class that is made here */

static Layout *
find_layout(PyObject *cls)
{
    PyObject *capsule = PyDict_GetItemWithError(layouts, cls);
    return capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, CAPSULE);
}

/* As if this were not here, for all that is unusual: it finds the words for errors too. */
static PyObject *
make_slowly(PyObject *cls, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    PyObject *by_name = NULL, *made = NULL;
    PyObject *plain = PyTuple_New(given);
    if (plain == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < given; i++)
        PyTuple_SET_ITEM(plain, i, Py_NewRef(args[i]));
    if (names != NULL) {
        if ((by_name = PyDict_New()) == NULL)
            goto done;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++)
            if (PyDict_SetItem(by_name, PyTuple_GET_ITEM(names, i), args[given + i]) < 0)
                goto done;
    }
    made = PyType_Type.tp_call(cls, plain, by_name);
done:
    Py_DECREF(plain);
    Py_XDECREF(by_name);
    return made;
}

/* The place of a name among the fields; names come in their order as a rule. */
static Py_ssize_t
find_field(const Layout *layout, PyObject *name, Py_ssize_t first)
{
    for (Py_ssize_t n = 0; n < layout->count; n++) {
        Py_ssize_t i = first + n < layout->count ? first + n : first + n - layout->count;
        if (layout->fields[i].name == name && layout->fields[i].is_given)
            return i;
    }
    return -1;
}

static PyObject **
slot_of(PyObject *value, const Field *field)
{
    return (PyObject **)((char *)value + field->offset);
}

/* Fill the slots; 0 where the slow way is to be taken, -1 with an exception. */
static int
fill(const Layout *layout, PyObject *value, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    if (given > layout->positional)
        return 0;
    for (Py_ssize_t i = 0; i < given; i++)
        *slot_of(value, &layout->fields[i]) = Py_NewRef(args[i]);
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0, next = given; i < named; i++) {
        Py_ssize_t at = find_field(layout, PyTuple_GET_ITEM(names, i), next);
        if (at < 0 || *slot_of(value, &layout->fields[at]) != NULL)
            return 0;
        *slot_of(value, &layout->fields[at]) = Py_NewRef(args[given + i]);
        next = at + 1;
    }
    if (given + named == layout->count)
        return 1;
    for (Py_ssize_t i = given; i < layout->count; i++) {
        const Field *field = &layout->fields[i];
        PyObject **slot = slot_of(value, field);
        if (*slot != NULL)
            continue;
        if (field->fallback != NULL)
            *slot = Py_NewRef(field->fallback);
        else if (field->factory == NULL)
            return 0;
        else if ((*slot = PyObject_CallNoArgs(field->factory)) == NULL)
            return -1;
    }
    return 1;
}

static PyObject *
make(PyObject *cls, PyObject *const *args, size_t flags, PyObject *names)
{
    Py_ssize_t given = PyVectorcall_NARGS(flags);
    Layout *layout = find_layout(cls);
    if (layout == NULL)
        return PyErr_Occurred() ? NULL : make_slowly(cls, args, given, names);
    PyObject *value = ((PyTypeObject *)cls)->tp_alloc((PyTypeObject *)cls, 0);
    if (value == NULL)
        return NULL;
    int filled = fill(layout, value, args, given, names);
    if (filled == 1 && layout->check != NULL) {
        PyObject *checked = PyObject_CallOneArg(layout->check, value);
        filled = checked == NULL ? -1 : 1;
        Py_XDECREF(checked);
    }
    if (filled == 1)
        return value;
    Py_DECREF(value);
    return filled < 0 ? NULL : make_slowly(cls, args, given, names);
}

static void
drop_layout(PyObject *capsule)
{
    Layout *layout = PyCapsule_GetPointer(capsule, CAPSULE);
    if (layout == NULL)
        return;
    Py_XDECREF(layout->check);
    for (Py_ssize_t i = 0; i < layout->count; i++) {
        Py_XDECREF(layout->fields[i].name);
        Py_XDECREF(layout->fields[i].fallback);
        Py_XDECREF(layout->fields[i].factory);
    }
    PyMem_Free(layout);
}

/* One field of (name, whether it is given, whether it has a default, the default, factory or None). */
static int
read_field(PyObject *cls, PyObject *description, Field *field)
{
    PyObject *name, *fallback, *factory;
    int has_fallback;
    if (!PyArg_ParseTuple(description, "UppOO", &name, &field->is_given, &has_fallback, &fallback,
                          &factory))
        return -1;
    field->name = Py_NewRef(name);
    PyUnicode_InternInPlace(&field->name);
    if (has_fallback)
        field->fallback = Py_NewRef(fallback);
    if (factory != Py_None)
        field->factory = Py_NewRef(factory);
    PyObject *slot = PyDict_GetItemWithError(((PyTypeObject *)cls)->tp_dict, field->name);
    if (slot == NULL || !Py_IS_TYPE(slot, &PyMemberDescr_Type)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%U is not a slot of its class", field->name);
        return -1;
    }
    field->offset = ((PyMemberDescrObject *)slot)->d_member->offset;
    return 0;
}

/* make_directly(cls, fields, positional, check): from now on values are made by `make`. */
static PyObject *
make_directly(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *cls, *fields, *check;
    Py_ssize_t positional;
    if (!PyArg_ParseTuple(args, "O!O!nO", &PyType_Type, &cls, &PyTuple_Type, &fields, &positional,
                          &check))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(fields);
    PyTypeObject *type = (PyTypeObject *)cls;
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || type->tp_base != &PyBaseObject_Type ||
        positional < 0 || positional > count) {
        PyErr_SetString(PyExc_TypeError, "only classes with slots of their own are made directly");
        return NULL;
    }
    Layout *layout = PyMem_Calloc(1, sizeof(Layout) + count * sizeof(Field));
    if (layout == NULL)
        return PyErr_NoMemory();
    layout->count = count;
    layout->positional = positional;
    layout->check = check == Py_None ? NULL : Py_NewRef(check);
    PyObject *capsule = PyCapsule_New(layout, CAPSULE, drop_layout);
    if (capsule == NULL) {
        PyMem_Free(layout);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (read_field(cls, PyTuple_GET_ITEM(fields, i), &layout->fields[i]) < 0) {
            Py_DECREF(capsule);
            return NULL;
        }
    int failed = PyDict_SetItem(layouts, cls, capsule);
    Py_DECREF(capsule);
    if (failed < 0)
        return NULL;
#ifndef Py_GIL_DISABLED
    type->tp_vectorcall = make;
#endif
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"make_directly", make_directly, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int
weft_add_frozen(PyObject *module)
{
    if (layouts == NULL && (layouts = PyDict_New()) == NULL)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
