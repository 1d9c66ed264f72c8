/* A module that exports, laid out as modpost and the kernel's module.lds do it. */
	.section .modinfo, "a"
	.asciz "license=Dual MIT/GPL"
	.asciz "version=1.2"
	.asciz "alias=pci:v000010DEd*sv*sd*bc03sc02i00*"
	.asciz "firmware=acme/1.2/gsp.bin"
	.asciz "softdep=pre: crc32c"
	.asciz "depends=alpha,beta"
	.asciz "name=prov"
	.asciz "vermagic=6.12.1 SMP preempt mod_unload modversions "
	.byte 0, 0, 0

	.text
	.globl plain, plain_gpl
plain:
	call printk@PLT
plain_gpl:
	call kmalloc@PLT

	.section __ksymtab_strings, "aMS", %progbits, 1
__kstrtab_plain:	.asciz "plain"
__kstrtabns_plain:	.asciz ""
__kstrtab_plain_gpl:	.asciz "plain_gpl"
__kstrtabns_plain_gpl:	.asciz "ACME"

	.section __ksymtab, "a"
__ksymtab_plain:
	.long plain - ., __kstrtab_plain - ., __kstrtabns_plain - .
	.section __ksymtab_gpl, "a"
__ksymtab_plain_gpl:
	.long plain_gpl - ., __kstrtab_plain_gpl - ., __kstrtabns_plain_gpl - .

	.section __kcrctab, "a"
__crc_plain:	.long 0x11111111
	.section __kcrctab_gpl, "a"
__crc_plain_gpl:	.long 0x22222222

	.section __versions, "a"
	.quad 0xaaaaaaaa
	.asciz "printk"
	.balign 64
	.quad 0xbbbbbbbb
	.asciz "kmalloc"
	.balign 64
