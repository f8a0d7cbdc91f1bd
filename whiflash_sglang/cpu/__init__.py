"""What SGLang 0.5.23 lacks on a machine without a GPU, and nothing else.

* ``environment``: prepares a process (and its children) to import SGLang here;
* ``substitutes/sgl_kernel``: importable stand-in for the CUDA wheel of that name;
* ``ops``: the CPU ops that SGLang's speculative path asks ``sgl_kernel`` for;
* ``attention``: an attention backend with tree verify and multi-step drafting;
* ``linear``: products with weights that are laid out once;
* ``hooks``: puts the backend where SGLang looks for it.

On a machine with a GPU none of it is active.
"""
