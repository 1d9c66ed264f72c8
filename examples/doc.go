// Package examples holds files to start from: a description of a lab, and jobs for
// engines that run labs. docs/engines.md explains them. Its tests check each of them
// as far as that is possible without the engine.
package examples
