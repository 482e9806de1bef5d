/* The ledger's moves of whole devices, on the lists of `weft.core.state.capacity.Capacity`. */
#include "native.h"

static const double SLACK = 1e-6; /* of CPU cores and GB */
static PyObject *name_slices, *name_sharing, *name_node, *name_gpus, *name_cpus, *name_mem_gb;

/* Where a ledger keeps what: borrowed from the tuple that Python hands over. */
typedef struct {
    PyObject *index;     /* position of each node by its name */
    PyObject *pool;      /* of each node: the number of its kind */
    PyObject *full;      /* of each node: all its devices as bits */
    PyObject *mask;      /* of each node: its free devices as bits */
    PyObject *bits;      /* of each kind and count: the nodes with that many free, as bits */
    PyObject *idle;      /* of each kind: free devices */
    PyObject *empty;     /* of each node: CPU cores and GB of memory when it is empty */
    PyObject *host;      /* of each node: the same that are left */
    PyObject *guests;    /* opportunistic jobs by node and device */
} Ledger;

/* One part of an allocation. */
typedef struct {
    Py_ssize_t node;
    unsigned long long devices;
    double cpus, mem_gb;
} Part;

static int
read_ledger(PyObject *parts, Ledger *ledger)
{
    if (!PyTuple_Check(parts) || PyTuple_GET_SIZE(parts) != sizeof(Ledger) / sizeof(PyObject *)) {
        PyErr_SetString(PyExc_TypeError, "expected the parts of a ledger");
        return -1;
    }
    memcpy(ledger, ((PyTupleObject *)parts)->ob_item, sizeof(Ledger));
    PyObject *const lists[] = {ledger->pool, ledger->full, ledger->mask, ledger->bits,
                               ledger->idle, ledger->empty, ledger->host};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!PyList_Check(lists[i]))
            goto wrong;
    Py_ssize_t nodes = PyList_GET_SIZE(ledger->mask);
    if (PyDict_Check(ledger->index) && PyDict_Check(ledger->guests) &&
        PyList_GET_SIZE(ledger->pool) == nodes && PyList_GET_SIZE(ledger->full) == nodes &&
        PyList_GET_SIZE(ledger->empty) == nodes && PyList_GET_SIZE(ledger->host) == nodes)
        return 0;
wrong:
    PyErr_SetString(PyExc_TypeError, "the parts of a ledger do not belong together");
    return -1;
}

/* A set of devices as bits; 0 where one is listed twice or is below 0, or above what fits here. */
static unsigned long long
bits_of(PyObject *numbers)
{
    unsigned long long bits = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++) {
        int too_large;
        long number = PyLong_AsLongAndOverflow(PyTuple_GET_ITEM(numbers, i), &too_large);
        if (number < 0 || number > 62 || bits >> number & 1)
            return 0;
        bits |= 1ULL << number;
    }
    return bits;
}

static int
read_float(PyObject *object, PyObject *name, double *number)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL)
        return -1;
    *number = PyFloat_AsDouble(value);
    Py_DECREF(value);
    return *number == -1.0 && PyErr_Occurred() ? -1 : 0;
}

/* 1 with a part of an allocation, 0 if it is none of whole devices here, -1 with an exception. */
static int
read_part(const Ledger *ledger, PyObject *slice, Part *part)
{
    PyObject *name = PyObject_GetAttr(slice, name_node);
    if (name == NULL)
        return -1;
    PyObject *number = PyDict_GetItemWithError(ledger->index, name);
    Py_DECREF(name);
    if (number == NULL)
        return PyErr_Occurred() ? -1 : 0;
    part->node = PyLong_AsSsize_t(number);
    PyObject *gpus = PyObject_GetAttr(slice, name_gpus);
    if (gpus == NULL)
        return -1;
    part->devices = PyTuple_Check(gpus) ? bits_of(gpus) : 0;
    Py_DECREF(gpus);
    if (PyErr_Occurred() || read_float(slice, name_cpus, &part->cpus) < 0 ||
        read_float(slice, name_mem_gb, &part->mem_gb) < 0)
        return -1;
    if (part->devices == 0 || part->node < 0 || part->node >= PyList_GET_SIZE(ledger->mask))
        return 0;
    PyLong_AsUnsignedLongLong(PyList_GET_ITEM(ledger->full, part->node));
    if (!PyErr_Occurred())
        return 1;
    if (!PyErr_ExceptionMatches(PyExc_OverflowError))
        return -1;
    PyErr_Clear();
    return 0; /* a node with more devices than bits here */
}

static int
read_host(PyObject *pairs, Py_ssize_t node, double *cpus, double *mem_gb)
{
    PyObject *pair = PyList_GET_ITEM(pairs, node);
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "a host is a pair of CPU cores and GB of memory");
        return -1;
    }
    double numbers[2];
    if (weft_get_numbers(&PyTuple_GET_ITEM(pair, 0), 2, numbers) < 0)
        return -1;
    *cpus = numbers[0];
    *mem_gb = numbers[1];
    return 0;
}

/* Whether opportunistic jobs are on a node; -1 with an exception. */
static int
has_guests(PyObject *guests, Py_ssize_t node)
{
    PyObject *place, *count;
    Py_ssize_t at = 0;
    while (PyDict_Next(guests, &at, &place, &count)) {
        Py_ssize_t on = PyTuple_Check(place) && PyTuple_GET_SIZE(place) == 2
                            ? PyLong_AsSsize_t(PyTuple_GET_ITEM(place, 0))
                            : -1;
        if (on == node)
            return 1;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int
set_item(PyObject *list, Py_ssize_t at, PyObject *made)
{
    return made == NULL ? -1 : PyList_SetItem(list, at, made);
}

/* Put a node into another set, or take it out: `bits[free] ^= 1 << node`. */
static int
flip(PyObject *sets, Py_ssize_t free, PyObject *bit)
{
    if (free >= PyList_GET_SIZE(sets)) {
        PyErr_SetString(PyExc_ValueError, "a node with more devices than its kind has");
        return -1;
    }
    return set_item(sets, free, PyNumber_Xor(PyList_GET_ITEM(sets, free), bit));
}

/* `weft.core.state.whole_devices.set_mask`. */
static int
set_mask(const Ledger *ledger, Py_ssize_t node, unsigned long long was, unsigned long long mask)
{
    int before = __builtin_popcountll(was), after = __builtin_popcountll(mask);
    if (set_item(ledger->mask, node, PyLong_FromUnsignedLongLong(mask)) < 0)
        return -1;
    if (before == after)
        return 0;
    Py_ssize_t pool = PyLong_AsSsize_t(PyList_GET_ITEM(ledger->pool, node));
    if (pool < 0 || pool >= PyList_GET_SIZE(ledger->bits) || pool >= PyList_GET_SIZE(ledger->idle)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a node of a kind that there is not");
        return -1;
    }
    PyObject *sets = PyList_GET_ITEM(ledger->bits, pool);
    PyObject *one = PyLong_FromLong(1), *number = PyLong_FromSsize_t(node), *bit = NULL;
    if (one != NULL && number != NULL)
        bit = PyNumber_Lshift(one, number);
    Py_XDECREF(one);
    Py_XDECREF(number);
    int failed = bit == NULL || flip(sets, before, bit) < 0 || flip(sets, after, bit) < 0;
    Py_XDECREF(bit);
    if (failed)
        return -1;
    long long idle = PyLong_AsLongLong(PyList_GET_ITEM(ledger->idle, pool));
    return set_item(ledger->idle, pool, PyLong_FromLongLong(idle + after - before));
}

/* `weft.core.state.whole_devices._move`, of one part. */
static int
move_part(const Ledger *ledger, const Part *part, int taking)
{
    Py_ssize_t node = part->node;
    unsigned long long was = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(ledger->mask, node));
    unsigned long long mask = taking ? was & ~part->devices : was | part->devices;
    if (PyErr_Occurred() || set_mask(ledger, node, was, mask) < 0)
        return -1;
    unsigned long long full = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(ledger->full, node));
    if (PyErr_Occurred())
        return -1;
    if (mask == full && !taking) {
        int guests = PyDict_GET_SIZE(ledger->guests) ? has_guests(ledger->guests, node) : 0;
        if (guests < 0)
            return -1;
        if (!guests) { /* exactly what there is when a node empties, so that rounding never adds up */
            PyObject *all = PyList_GET_ITEM(ledger->empty, node);
            return PyList_SetItem(ledger->host, node, Py_NewRef(all));
        }
    }
    double cpus, mem_gb, sign = taking ? -1.0 : 1.0;
    if (read_host(ledger->host, node, &cpus, &mem_gb) < 0)
        return -1;
    PyObject *left = PyTuple_New(2);
    if (left == NULL)
        return -1;
    PyObject *rest[] = {PyFloat_FromDouble(cpus + sign * part->cpus),
                        PyFloat_FromDouble(mem_gb + sign * part->mem_gb)};
    PyTuple_SET_ITEM(left, 0, rest[0]);
    PyTuple_SET_ITEM(left, 1, rest[1]);
    if (rest[0] == NULL || rest[1] == NULL) {
        Py_DECREF(left);
        return -1;
    }
    return PyList_SetItem(ledger->host, node, left);
}

/* Whether a part is free with its part of the host; -1 with an exception. */
static int
is_free(const Ledger *ledger, const Part *part)
{
    unsigned long long free =
        PyLong_AsUnsignedLongLong(PyList_GET_ITEM(ledger->mask, part->node));
    double cpus, mem_gb;
    if (PyErr_Occurred() || read_host(ledger->host, part->node, &cpus, &mem_gb) < 0)
        return -1;
    return !(part->devices & ~free) && !(part->cpus > cpus + SLACK) &&
           !(part->mem_gb > mem_gb + SLACK);
}

#define MOST_PARTS 256 /* more are left to Python */

/* The parts of an allocation of whole devices: how many, 0 where it is none, -1 with an exception. */
static Py_ssize_t
read_parts(const Ledger *ledger, PyObject *allocation, PyObject *exclusive, Part *parts)
{
    PyObject *sharing = PyObject_GetAttr(allocation, name_sharing);
    if (sharing == NULL)
        return -1;
    Py_DECREF(sharing);
    if (sharing != exclusive)
        return 0;
    PyObject *slices = PyObject_GetAttr(allocation, name_slices);
    if (slices == NULL)
        return -1;
    Py_ssize_t count = PyTuple_Check(slices) ? PyTuple_GET_SIZE(slices) : 0;
    if (count > MOST_PARTS)
        count = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int is_part = read_part(ledger, PyTuple_GET_ITEM(slices, i), &parts[i]);
        if (is_part <= 0) {
            count = is_part;
            break;
        }
        for (Py_ssize_t k = 0; k < i; k++)
            if (parts[k].node == parts[i].node)
                count = 0; /* listed twice */
    }
    Py_DECREF(slices);
    return count;
}

static PyObject *
move(PyObject *const *args, Py_ssize_t given, int taking)
{
    Ledger ledger;
    Part parts[MOST_PARTS];
    if (given != 3) {
        PyErr_SetString(PyExc_TypeError, "expected a ledger's parts, an allocation and a sharing");
        return NULL;
    }
    if (read_ledger(args[0], &ledger) < 0)
        return NULL;
    Py_ssize_t count = read_parts(&ledger, args[1], args[2], parts);
    for (Py_ssize_t i = 0; i < count && taking; i++) {
        int free = is_free(&ledger, &parts[i]);
        if (free <= 0)
            count = free;
    }
    if (count < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        if (move_part(&ledger, &parts[i], taking) < 0)
            return NULL;
    return PyBool_FromLong(count > 0);
}

/* `weft.core.state.whole_devices.take_whole`. */
static PyObject *
take_whole(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    return move(args, count, 1);
}

/* `weft.core.state.whole_devices.give_whole`. */
static PyObject *
give_whole(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    return move(args, count, 0);
}

static PyMethodDef functions[] = {
    FUNCTION(give_whole),
    FUNCTION(take_whole),
    {NULL, NULL, 0, NULL},
};

int
weft_add_ledger(PyObject *module)
{
    PyObject **const names[] = {&name_slices, &name_sharing, &name_node,
                                &name_gpus,   &name_cpus,    &name_mem_gb};
    const char *const texts[] = {"slices", "sharing", "node", "gpus", "cpus", "mem_gb"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((*names[i] = PyUnicode_InternFromString(texts[i])) == NULL)
            return -1;
    return PyModule_AddFunctions(module, functions);
}
