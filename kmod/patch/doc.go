// Package patch carries the edits that make PCIe BAR1 peer-to-peer work in
// NVIDIA's open-gpu-kernel-modules, and the engine that applies them.
//
// An edit is data ([Edit]): where it belongs (file, enclosing function, anchor),
// what it writes there, which facts of the source make it needed, and what must
// hold in the function afterwards. One definition serves every release whose
// source passes the edit's tests; the release number is never looked at.
//
// [Plan] reads a tree through an [io/fs.FS], works in memory and writes nothing.
// Each edit ends as applied, already applied, not needed (with the reason and
// the lines that show it) or refused. If one edit is refused, nothing is written at all.
//
// A tree serves all GPU families, since one driver does: it gets the edits that any of them needs, and
// the report tells for each family which matter. From 580 on the core edits touch two files, and
// only for Turing, Ampere and Ada; on Blackwell from 590 on there is none.
//
// An edited line ends with a comment that names the edit ("// mkp2pimg P2P-E4-CREATE"): readers see
// whose work it is, and a second run finds the edit already applied. Without the comment an edit counts as
// already applied if all that it would prove holds. Trees that carry the whole pattern of another
// P2P driver are refused ([Forks]): an edit on top of one that does the same in another way would count an
// address twice.
//
// Edits are not undone by patterns: what a pattern matched, such as the hash in the name of a stub, is
// gone once it is replaced. [Result.WriteUndo] records the lines before and after each edit in the tree,
// and [Revert] puts them back, last edit first, where they are still what was written.
//
// # Adding an edit
//
//  1. Put it in the file of its family (hal.go, gmmu.go, static.go …) and add it
//     to that family's function.
//  2. ID: P2P-E<number>-<WORD>; the number follows the family.
//  3. Func names the C function whose body holds the anchor; an anchor need only
//     be unique there. Anchor is an RE2 expression matched against the body with
//     its comments blanked, so a comment can't satisfy it.
//  4. New is the replacement, expanded like [regexp.Regexp.Expand]: ${0} is the
//     text matched, so an insertion repeats it.
//  5. Needs are presence tests in the source. Say in Else what it means when the
//     test fails: that text is the reason in the report.
//  6. Proofs are expressions that must match a stated number of times in the
//     body after the edit. They must not all hold before it. Match spaces by \s: the comment that
//     names the edit lands at the end of the first edited line.
//  7. Run "make patch-matrix TREES=<bare git or folder of trees>" and compile the
//     object of the touched file from one release of every branch.
package patch
