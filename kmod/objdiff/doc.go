// Package objdiff compares the part of the driver that knows no kernel (nv-kernel.o) with and
// without the edits, function by function and datum by datum, and finds for each difference the
// edit that it comes from.
//
// [Read] takes a relocatable ELF object whose functions lie in sections of their own or did so
// before they were linked (-ffunction-sections, as the driver is compiled): every reference between
// functions is a relocation then. [Compare] compares code and data by their bytes and by what
// their relocations refer to: a function or datum by its counterpart in the other object, what has
// no name, such as a string, by its content. Where something lies does not count, as all moves when
// one function grows.
//
// [Check] asks the source which functions are edited. Others may differ for a reason: a copy of an
// edited function is inlined in them; they hold numbers of lines that moved, as the driver's
// assertions and messages have __LINE__ as an operand; or they exist in one object only, as nothing
// but edited functions refers to them. Anything else is an error.
package objdiff
