// Standin takes the place of p2pinit and p2pbw in tests.
package main

func main() { println("stand-in") }
