# From the 32-bit entry of the PVH boot protocol to Rust in 64-bit mode.
# Xen's docs/misc/pvh.pandoc: protected mode, flat segments, no paging, %ebx = hvm_start_info.

.section .note.pvh, "a", @note
.balign 4
    .long 4                 # length of the name
    .long 8                 # length of the entry
    .long 18                # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad start32

.section .boot, "ax", @progbits
.code32
.globl start32
start32:
    cli
    movl $stack_top, %esp
    movl %ebx, %edi         # first argument of kernel_main

    # The first 512 GiB, mapped to themselves in pages of 1 GiB.
    movl $low_pages + 3, %eax
    movl %eax, top_pages
    xorl %ecx, %ecx
1:  movl %ecx, %eax
    shll $30, %eax
    orl $0x83, %eax         # present, writable, large
    movl %eax, low_pages(, %ecx, 8)
    movl %ecx, %eax
    shrl $2, %eax
    movl %eax, low_pages + 4(, %ecx, 8)
    incl %ecx
    cmpl $512, %ecx
    jne 1b
    movl $top_pages, %eax
    movl %eax, %cr3

    movl %cr4, %eax
    orl $0x620, %eax        # PAE, and SSE: OSFXSR, OSXMMEXCPT
    movl %eax, %cr4
    movl $0xc0000080, %ecx  # EFER
    rdmsr
    orl $0x100, %eax        # long mode
    wrmsr
    movl %cr0, %eax
    andl $0xfffffffb, %eax  # no emulation of the FPU
    orl $0x80000002, %eax   # paging, monitor coprocessor
    movl %eax, %cr0
    lgdt gdt_pointer
    ljmp $8, $start64

.code64
start64:
    xorl %eax, %eax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl %edi, %edi
    call kernel_main
2:  hlt
    jmp 2b

.balign 8
gdt:
    .quad 0
    .quad 0x00af9a000000ffff  # 64-bit code
gdt_pointer:
    .word 15
    .long gdt

.section .bss.boot, "aw", @nobits
.balign 4096
.globl top_pages
top_pages:
    .skip 4096
low_pages:
    .skip 4096
.globl spare_pages
spare_pages:
    .skip 4 * 4096
stack:
    .skip 8 << 20
stack_top:
